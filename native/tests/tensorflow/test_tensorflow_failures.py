"""The errors that TensorFlow scripts get when a rank fails, and when the library cannot start."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import List

import pytest
import ranks

pytestmark = pytest.mark.tensorflow

ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2", "SMDP_OPERATION_TIMEOUT_S": "6", "SMDP_WARN_S": "2"}

STEP = """
sdp.init()
variables = [tf.Variable(tf.ones([50])) for _ in range(20)]
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(one * x) for one in variables])
    return sdp.DistributedGradientTape(tape).gradient(loss, variables)
for _ in range(3):
    step(tf.constant(1.0))
"""
RAISED = """
except tf.errors.OpError as error:
    said = error.message.partition("smdp: ")[2].partition(chr(10))[0]
    print("raised", type(error).__name__, said, "after", time.monotonic() - began)
"""


def run(hosts: List[int], body: str, *, catches: bool = True) -> List[ranks.Outcome]:
    """With ``catches`` the body ends in a ``try``, and ``raised`` prints the error."""
    body = STEP + textwrap.dedent(body).rstrip() + (RAISED if catches else "")
    return ranks.start(hosts, body, preamble=ranks.TENSORFLOW, env=ENVIRONMENT).finish(120)


def raised(outcome: ranks.Outcome) -> List[str]:
    return [line for line in outcome.out.splitlines() if line.startswith("raised ")]


def test_dead_rank_is_named_on_the_others_within_a_second() -> None:
    outcomes = run(
        [2, 2],
        """
        began = time.monotonic()
        if rank == 1:
            os.kill(os.getpid(), 9)
        try:
            step(tf.constant(1.0))
        """,
    )
    for outcome in (outcomes[0], *outcomes[2:]):
        (line,) = raised(outcome)
        assert line.startswith("raised InternalError") and "rank 1" in line, line
        assert float(line.split()[-1]) < 5, line  # one second, and more on a loaded machine


def test_a_mismatched_shape_is_named_with_both_sizes() -> None:
    outcomes = run(
        [2, 2],
        """
        began = time.monotonic()
        try:
            sdp.oob_allreduce(tf.zeros([7 if rank == 3 else 9]))
        """,
    )
    for outcome in outcomes:
        (line,) = raised(outcome)
        assert line.startswith("raised InvalidArgumentError")
        assert "size (7 and 9)" in line or "size (9 and 7)" in line, line


def test_late_rank_gives_a_warning_and_an_error_at_the_deadline() -> None:
    outcomes = run(
        [2, 2],
        """
        began = time.monotonic()
        if rank == 2:
            time.sleep(4)
        step(tf.constant(1.0))
        print("late is fine", flush=True)
        began = time.monotonic()
        if rank == 2:
            time.sleep(15)
        try:
            step(tf.constant(1.0))
        """,
    )
    for outcome in outcomes:
        assert "late is fine" in outcome.out
        (line,) = raised(outcome)
        assert "rank 2" in line or outcome.rank == 2, line
    assert "rank 2" in outcomes[0].err and "waiting" in outcomes[0].err, outcomes[0].err
    (line,) = raised(outcomes[0])
    assert line.startswith("raised DeadlineExceededError"), line


def test_failed_step_does_not_hang_and_raises_on_the_others() -> None:
    outcomes = run(
        [1, 1],
        """
        @tf.function
        def broken(x, wrong):
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(one * x) for one in variables[:10]])
                if wrong:
                    y = tf.debugging.assert_less(tf.reduce_sum(variables[0]) * x, 10.0)
                    with tf.control_dependencies([y]):
                        loss += tf.reduce_sum(tf.identity(variables[11])) * 0
                    loss = tf.identity(loss)
            return sdp.DistributedGradientTape(tape).gradient(loss, variables[:10])
        for _ in range(2):
            broken(tf.constant(1.0), False)
        began = time.monotonic()
        try:
            broken(tf.constant(100.0), rank == 0)
            print("raised nothing")
        except tf.errors.InvalidArgumentError as error:
            print("raised InvalidArgumentError", time.monotonic() - began)
            sys.exit(3)
        """,
    )
    assert raised(outcomes[0])[0].startswith("raised InvalidArgumentError"), outcomes[0]
    (line,) = raised(outcomes[1])
    assert line == "raised nothing" or "rank 0" in line, line


def test_64_running_reductions_leave_tensorflows_two_threads_free() -> None:
    """The reductions of one rank wait for the other's, while operations that need a thread continue."""
    outcomes = ranks.start(
        [1, 1],
        """
        tf.config.threading.set_inter_op_parallelism_threads(2)
        tf.config.threading.set_intra_op_parallelism_threads(1)
        sdp.init()
        ran = tf.Variable(0)
        @tf.function
        def step(x):
            reduced = [sdp.allreduce(x + i, i, 64) for i in range(64)]
            for _ in range(20):
                tf.py_function(lambda: print("ran", time.monotonic(), flush=True), [], [])
            return reduced
        @tf.function
        def others(x):
            return [sdp.allreduce(x + i, i, 64) for i in range(64)]
        for _ in range(2):
            step(tf.zeros([10]))
        print("now", time.monotonic(), flush=True)
        if rank == 1:
            time.sleep(4)
        found = step(tf.fill([10], float(rank)))
        assert [one.numpy()[0] for one in found] == [0.5 + i for i in range(64)]
        print("over", time.monotonic())
        """,
        preamble=ranks.TENSORFLOW,
        env=ENVIRONMENT,
    ).finish(120)
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    lines = outcomes[0].out.splitlines()
    after = lines[lines.index(next(line for line in lines if line.startswith("now"))) :]
    times = [float(line.split()[1]) for line in after]
    assert len(times) == 22
    assert times[-2] - times[0] < 3 < times[-1] - times[0], "all ran while the reductions were waiting"


def test_failed_start_gives_the_reason() -> None:
    def said(body: str, **environment: str) -> str:
        clean = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
        command = [sys.executable, "-c", ranks.TENSORFLOW.rpartition("rank, size")[0] + body]
        ran = subprocess.run(
            command,
            env={**clean, **ENVIRONMENT, **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert ran.returncode != 0
        return ran.stderr

    assert "RANK is not set, so no launcher started this process" in said("sdp.init()")
    assert "call smdistributed.dataparallel.tensorflow.init() first" in said("sdp.rank()")
    call = (
        "from smdp_engine.tensorflow import operations; operations.all_reduce([tf.zeros(2)], lane='', reduction='sum')"
    )
    assert "FailedPreconditionError" in said(call)
    given = {"WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    assert "RANK must be a number, found 'first'" in said("sdp.init()", RANK="first", **given)


def test_without_operations_for_this_tensorflow_and_a_compiler_the_import_is_refused(tmp_path: Path) -> None:
    def refusal(version: str) -> str:
        body = f"import tensorflow as tf; tf.__version__ = {version!r}\n"
        body += "from smdp_engine.tensorflow import library; library.operations()"
        environment = {**os.environ, "PATH": str(tmp_path), "CXX": "", "SMDP_ADAPTER_CACHE": str(tmp_path)}
        ran = subprocess.run(
            [sys.executable, "-c", body], env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        return ran.stderr.strip().splitlines()[-1]

    assert refusal("1.15.5").startswith(
        "ImportError: smdistributed.dataparallel.tensorflow needs TensorFlow 2.11 or later, this is 1.15.5"
    )
    refused = refusal("2.99.0")
    assert "smdp-engine has no adapter for TensorFlow 2.99.0 (new C++ ABI): this installation has 2." in refused
    assert "no C++ compiler is on PATH. Install one: " in refused


def test_script_without_shutdown_exits_successfully_and_soon() -> None:
    began = time.monotonic()
    outcomes = run([2], "step(tf.constant(1.0))", catches=False)
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    assert time.monotonic() - began < 60


def test_forked_process_is_not_part_of_the_job() -> None:
    body = """
    child = os.fork()
    if child == 0:
        sys.exit(0)
    until = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        assert time.monotonic() < until, "the child hangs"
        time.sleep(0.1)
    step(tf.constant(1.0))
    """
    outcomes = run([1, 1], "import sys\n" + textwrap.dedent(body), catches=False)
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes


def test_shutdown_ends_the_wait_of_another_thread() -> None:
    body = """
    import threading
    def wait():
        try:
            sdp.broadcast(tf.ones([2]), root_rank=1)
        except tf.errors.CancelledError as error:
            print("ended", "destroyed" in error.message or "shut down" in error.message)
    if rank == 0:
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(1)
        sdp.shutdown()
        waiting.join(30)
        assert not waiting.is_alive()
    else:
        time.sleep(3)
    """
    outcomes = run([1, 1], textwrap.dedent(body), catches=False)
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    assert "ended True" in outcomes[0].out


def test_script_in_a_file_is_traced_without_autograph_warnings(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        ranks.TENSORFLOW + STEP + "\n@tf.function\ndef more(x):\n    return sdp.oob_allreduce(x)\nmore(tf.ones([2]))\n"
    )
    outcomes = ranks.start([1, 1], f"import runpy; runpy.run_path({str(script)!r})", preamble="").finish(100)
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    assert [outcome.err for outcome in outcomes if "AutoGraph" in outcome.err] == []
