"""A forked process behaves like a new interpreter."""

from pathlib import Path
from typing import List

import forked_process
import pytest
import ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not forked_process.is_possible, reason="this Python cannot pass descriptors"),
]

SAYS = """
import atexit, signal
print(sys.argv, sys.path[0] == "", __name__, sys.modules["__main__"].__dict__ is globals())
print(os.getcwd(), sorted(os.environ.items()))
print([os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in (1, 2)], sorted(os.listdir("/proc/self/fd"))[3:])
print(len(os.listdir("/proc/self/task")), signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(torch.get_num_threads(), sys.stdout.line_buffering, sys.stdin.read())
print("an error", file=sys.stderr)
atexit.register(print, "the end")
"""
ENDINGS = {"": 0, "sys.exit(3)": 3, "raise ValueError('a bug')": 1, "os.kill(os.getpid(), signal.SIGTERM)": -15}


@pytest.mark.parametrize(
    "ending", [pytest.param(one, marks=pytest.mark.runs if one.startswith(("sys", "os")) else []) for one in ENDINGS]
)
def test_forked_process_reports_the_same_environment(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_TEST", "1")
    monkeypatch.setattr(ranks, "free_port", lambda: 20_000)
    outcomes: List[List[ranks.Outcome]] = [
        ranks.start([1], SAYS + ending, cold=cold).finish() for cold in (False, True)
    ]
    for forked, started in zip(*outcomes):
        assert (forked.code, forked.out) == (started.code, started.out)
        assert started.code == ENDINGS[ending]
        assert "('OF_THE_TEST', '1')" in started.out
        assert ("the end" in started.out) == (started.code >= 0)
        for err in (forked.err, started.err):
            assert "an error" in err
            assert ("ValueError: a bug" in err) == (started.code == 1)


def test_interpreter_variables_are_detected() -> None:
    (outcome,) = ranks.run([1], "print(sys.flags.utf8_mode, sys.flags.hash_randomization)", env={"PYTHONHASHSEED": "0"})
    assert outcome.out == "0 0\n"


def test_killed_process_or_timeout_is_reported() -> None:
    job = ranks.start([2], "if rank == 0: print('up', flush=True); time.sleep(60)")
    assert job.processes[0].stdout is not None
    assert job.processes[0].stdout.readline() == "up\n"
    assert job.processes[1].wait(60) == 0
    assert job.processes[0].poll() is None
    killed, ended = job.finish(0.5)
    assert (killed.code, ended.code) == (-9, 0)
    assert "KILLED: the test's time limit was reached" in killed.err


def test_ranks_have_different_random_seeds() -> None:
    outcomes = ranks.run([2], "import random, numpy; print(torch.initial_seed(), random.random(), numpy.random.rand())")
    assert not set(outcomes[0].out.split()) & set(outcomes[1].out.split())
