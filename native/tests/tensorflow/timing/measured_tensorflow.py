"""Runs a script as a measured rank of TensorFlow, without an entrypoint: the script reads the events that it writes."""

import textwrap
from typing import Dict, List, Optional

import ranks

#: ``event()`` ends the window and returns its event. ``show()`` prints values that must not depend on the measurement.
PREAMBLE = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import hashlib, json, sys, tempfile, threading, time
import numpy as np
import tensorflow as tf
from smdp_engine.timing import clock as phases, emission, tensorflow_hooks
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
reading, writing = os.pipe()
status = os.fstat(writing)
os.environ["SMDP_EVENT_PIPE"] = f"{writing}:{status.st_dev}:{status.st_ino}"
os.environ.setdefault("SMDP_TIMING_S", "10000")
tensorflow_hooks.install()
own = emission.start()
def event():
    if own is None: return {}
    own.emit()
    fields = json.loads(os.read(reading, 65536))
    times = [fields[name + "_s"] for name in phases.PHASES]
    assert min(times) >= 0 and abs(sum(times) - fields["window"]) < 1e-4, fields
    return fields
def numbers(steps, batches, samples):
    fields = event()
    expected = {"steps": steps, "batches": batches, "samples": samples}
    assert own is None or {name: fields[name] for name in expected} == expected, fields
    return fields
def show(*values): print("shown", *values, flush=True)
def digest(arrays): return hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)).hexdigest()
def with_source(text):  # AutoGraph reads the source of a function
    handle, path = tempfile.mkstemp(".py")
    with open(handle, "w") as file: file.write(text)
    return compile(text, path, "exec")
x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
y = x.sum(1, keepdims=True)
def make_model():
    tf.keras.utils.set_random_seed(3)
    return tf.keras.Sequential([
        tf.keras.layers.InputLayer((8,)), tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dropout(0.5),
        tf.keras.layers.BatchNormalization(), tf.keras.layers.Dense(1)])
"""
OFF = {"SMDP_TIMING_S": "0"}


def run(body: str, env: Optional[Dict[str, str]] = None, size: int = 1) -> List[str]:
    """Run the body on one host and return the lines that rank 0 shows; every rank must exit with 0."""
    outcomes = ranks.run([size], f"exec(with_source({textwrap.dedent(body)!r}))", env=env, preamble=PREAMBLE)
    return [line for line in outcomes[0].out.splitlines() if line.startswith("shown")]
