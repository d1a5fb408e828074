"""Checkpoints of TensorFlow: resume on other ranks, damage, retention, a failed save and kills."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest
import ranks

pytestmark = pytest.mark.tensorflow
PAGE = Path(__file__).parents[3] / "docs/how-to/keras/checkpoints.md"
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2"}
MODEL = """
from smdp_engine.checkpoint import CheckpointError, TensorFlowCheckpoints
weights, count = tf.Variable(tf.zeros([1000])), tf.Variable(0, dtype=tf.int64)
def checkpoints(**options):
    return TensorFlowCheckpoints(FOLDER, weights=weights, count=count, **options)
def put(value):
    weights.assign(tf.fill([1000], float(value)))
    count.assign(value)
def values():
    return int(count), sorted(set(weights.numpy().tolist()))
"""


def run(hosts: List[int], folder: Path, body: str) -> List[ranks.Outcome]:
    given = f"FOLDER = {str(folder)!r}\n{MODEL}{body}"
    outcomes = ranks.start(hosts, given, preamble=ranks.TENSORFLOW, env=ENVIRONMENT).finish(120)
    assert [one.code for one in outcomes] == [0] * len(outcomes), [one.err for one in outcomes]
    return outcomes


def said(outcome: ranks.Outcome) -> List[str]:
    return [line for line in outcome.out.splitlines() if not line.startswith('{"smdp_event"')]


def test_checkpoint_of_3_ranks_is_loaded_on_one(tmp_path: Path) -> None:
    outcomes = run(
        [2, 1],
        tmp_path,
        """
sdp.init()
assert checkpoints().load() is None
saved = checkpoints(keep_last=2, keep_every=3)
for step in range(1, 7):
    put(step)
    saved.save(step)
print(sorted(os.listdir(FOLDER)))
put(0)
print(checkpoints().load(), values())
""",
    )
    names = [f"checkpoint-{step:010d}" for step in (3, 5, 6)]
    for outcome in outcomes:
        assert said(outcome) == [str(names), "6 (6, [6.0])"]
    events = [json.loads(line) for line in outcomes[0].out.splitlines() if line.startswith('{"smdp_event"')]
    assert [(one["event"], one["step"], one["world_size"]) for one in events] == [
        ("checkpoint_saved", step, 3) for step in range(1, 7)
    ]
    assert outcomes[0].err.count("smdp: the first checkpoint, of step 1, has ") == 1
    marker = json.loads((tmp_path / names[-1] / "COMPLETE").read_text(encoding="utf-8"))
    assert (marker["step"], marker["world_size"]) == (6, 3)
    assert sorted(marker["files"]) == ["state.data-00000-of-00001", "state.index"]
    (outcome,) = run(
        [1],
        tmp_path,
        """
print(checkpoints().load(), values())
sdp.init()
path = os.path.join(FOLDER, "checkpoint-0000000006", "state.data-00000-of-00001")
content = bytearray(open(path, "rb").read())
content[40] ^= 1
open(path, "wb").write(content)
print(checkpoints().load(), values())
os.remove(os.path.join(FOLDER, "checkpoint-0000000005", "COMPLETE"))
print(checkpoints().load(), values())
""",
    )
    assert said(outcome) == ["6 (6, [6.0])", "5 (5, [5.0])", "3 (3, [3.0])"]
    assert "state.data-00000-of-00001 differs from what was written" in outcome.err
    assert "checkpoint-0000000005 is not loaded: COMPLETE is missing" in outcome.err


def test_failed_save_is_an_error_on_every_rank(tmp_path: Path) -> None:
    body = """
sdp.init()
saved = checkpoints()
put(1)
saved.save(1)
if rank == 0:
    open(os.path.join(FOLDER, "checkpoint-0000000002"), "w").close()  # no folder can have this name
try:
    saved.save(2)
except CheckpointError as error:
    print(error)
other = TensorFlowCheckpoints(FOLDER, weights=tf.Variable(tf.zeros([7])))
try:
    other.load()
except CheckpointError as error:
    print(error)
"""
    for outcome in run([2], tmp_path, body):
        first, second = said(outcome)[:2]
        reason = "FileExistsError" if outcome.rank == 0 else "rank 0's error gives the reason"
        assert f"the checkpoint of step 2 was not saved in {tmp_path}: {reason}" in first
        assert f"the checkpoint of step 1 in {tmp_path} cannot be read: " in second


def test_ranks_that_save_different_steps_get_an_error_and_no_checkpoint(tmp_path: Path) -> None:
    body = """
sdp.init()
try:
    checkpoints().save(11 + rank)
except CheckpointError as error:
    print(error)
sdp.barrier()
print(os.path.exists(FOLDER) and os.listdir(FOLDER))
"""
    for outcome in run([2], tmp_path / "new", body):
        assert said(outcome) == [
            "the ranks save different steps, from 11 to 12: pass the same step on all ranks",
            "False",
        ]


def test_save_and_load_in_a_function_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"  # AutoGraph converts only what it finds in a file
    script.write_text(
        f"""{ranks.TENSORFLOW}
FOLDER = {str(tmp_path)!r}{MODEL}
saved = checkpoints()
saved.save(1)
@tf.function
def step(value):
    weights.assign_add(tf.fill([1000], value))
    saved.save(2)
@tf.function
def resumed():
    return saved.load()
for call in (lambda: step(1.0), resumed):
    try:
        call()
    except RuntimeError as error:
        print(str(error).rpartition("RuntimeError: ")[2].strip())
print(saved.load(), values())
""",
        encoding="utf-8",
    )
    (outcome,) = run([1], tmp_path, f"import runpy\nrunpy.run_path({str(script)!r})")
    refused = "call {}() of TensorFlowCheckpoints outside of tf.function, in eager mode"
    assert said(outcome) == [refused.format("save"), refused.format("load"), "1 (0, [0.0])"]
    assert outcome.out.count("checkpoint_saved") == 1


KILLED = """
import os, sys
import tensorflow as tf
FOLDER, LAST = sys.argv[1], int(sys.argv[2])
exec(sys.argv[3])
put(1)
saved = checkpoints(keep_last=1)
saved.save(1)
done = 0
def operate(*_):
    global done
    done += 1
    if done == LAST:
        os.kill(os.getpid(), 9)
def hear(event, arguments):
    if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir") or event == "open" and "w" in str(arguments[1]):
        if str(arguments[0]).startswith(FOLDER):
            operate()
sys.addaudithook(hear)
sync = os.fsync
os.fsync = lambda *given: (operate(), sync(*given))
write = saved._checkpoint.write
saved._checkpoint.write = lambda *given: (operate(), write(*given), operate())
put(2)
saved.save(int(sys.argv[4]))
print("operations", done)
"""


@pytest.mark.runs
@pytest.mark.parametrize("step", [2, 1], ids=["next", "again"])
def test_kill_at_any_operation_leaves_one_whole_step(tmp_path: Path, step: int) -> None:
    def save(folder: Path, last: int) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", KILLED, str(folder), str(last), MODEL, str(step)]
        return subprocess.run(
            command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=120, check=False
        )

    whole = save(tmp_path / "whole", 0)
    assert whole.returncode == 0, whole.stderr
    (count,) = re.findall(r"^operations (\d+)$", whole.stdout, re.MULTILINE)
    assert int(count) >= 8
    folders = [str(tmp_path / str(last)) for last in range(1, int(count) + 1)]
    for last, folder in enumerate(folders, 1):
        assert save(Path(folder), last).returncode == -signal.SIGKILL
    body = f"""
for one in {folders!r}:
    put(0)
    print(TensorFlowCheckpoints(one, weights=weights, count=count).load(), values())
"""
    (outcome,) = run([1], tmp_path / "unused", body)
    assert len(said(outcome)) == len(folders)
    assert set(said(outcome)) == {"1 (1, [1.0])", f"{step} (2, [2.0])"}, outcome.out


@pytest.mark.runs
def test_script_of_the_page_resumes_with_the_same_losses(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

    def losses(hosts: List[int], steps: int, folder: str) -> Dict[int, float]:
        settings = {**ENVIRONMENT, "STEPS": str(steps), "SMDP_CHECKPOINT_DIR": str(tmp_path / folder)}
        outcomes = ranks.start(hosts, code, preamble="", env=settings).finish(200)
        assert [one.code for one in outcomes] == [0] * len(outcomes), [one.err for one in outcomes]
        found = re.findall(r"^step (\d+) loss (\S+)$", outcomes[0].out, re.MULTILINE)
        return {int(step): float(loss) for step, loss in found}

    expected = losses([2], 10, "whole")
    first, second = losses([2], 5, "resumed"), losses([1], 10, "resumed")
    assert (sorted(first), sorted(second)) == ([*range(1, 6)], [*range(6, 11)])
    assert {**first, **second} == pytest.approx(expected, rel=1e-4)
