from __future__ import annotations

from dataclasses import replace

import pytest

from smdp_entrypoint.processes.failure import LONGEST_FILE, Failure, failure_text, first_cause

BAD = Failure(3, 1, "algo-2", 100.0, 1, None, "ValueError: bad thing", ["Traceback", "  File", "ValueError: bad thing"])


def test_failure_text_starts_with_exception_rank_and_exit_code() -> None:
    assert failure_text(BAD).splitlines() == [
        "ValueError: bad thing (rank 3 on algo-2, exit code 1)",
        "Traceback",
        "  File",
        "ValueError: bad thing",
    ]


@pytest.mark.parametrize(
    ("code", "signum", "text"),
    [
        (None, 9, "rank 3 on algo-2 was killed by SIGKILL (out of memory, or killed from outside)"),
        (None, 11, "rank 3 on algo-2 was killed by SIGSEGV (a crash in native code)"),
        (None, 12, "rank 3 on algo-2 was killed by SIGUSR2"),
        (None, 40, "rank 3 on algo-2 was killed by signal 40"),
        (3, None, "rank 3 on algo-2 exited with code 3"),
    ],
)
def test_exit_without_traceback_is_described(code: int | None, signum: int | None, text: str) -> None:
    failure = replace(BAD, code=code, signum=signum, error="", tail=["last words"])
    assert failure_text(failure) == f"{text}\nlast words"


def test_failure_text_has_at_most_1024_characters_and_whole_last_lines() -> None:
    tail = [f"line {number} " + "x" * 50 for number in range(100)]
    text = failure_text(replace(BAD, error="E" * 5000, tail=tail))
    assert len(text) <= LONGEST_FILE
    assert "(rank 3 on algo-2, exit code 1)\n" in text
    assert text.splitlines()[1:] == tail[-len(text.splitlines()) + 1 :]


def test_failure_that_began_first_is_the_cause() -> None:
    later = replace(BAD, rank=0, began=101.0)
    assert first_cause([later, BAD]) is BAD


def test_within_one_moment_a_lost_peer_is_not_the_cause() -> None:
    lost = replace(BAD, rank=0, began=99.9, error="ConnectionResetError: [Errno 104] Connection reset by peer")
    assert first_cause([lost, BAD]) is BAD
    assert first_cause([replace(lost, began=90.0), BAD]).rank == 0


def test_killed_worker_precedes_peers_that_lost_it() -> None:
    killed = replace(BAD, error="", code=None, signum=9)
    lost = replace(BAD, rank=0, error="torch.distributed.DistBackendError: NCCL error: remote process exited")
    assert first_cause([lost, killed]) is killed


def test_worker_without_output_after_a_traceback_is_a_candidate_for_30_seconds() -> None:
    hangs = replace(BAD, code=None, began=90.0)
    assert first_cause([BAD, hangs]) is hangs
    assert first_cause([BAD, replace(hangs, began=10.0)]) is BAD


def test_lost_peers_make_it_a_candidate_without_time_limit() -> None:
    hangs = replace(BAD, code=None, began=10.0)
    lost = replace(BAD, rank=0, error="RuntimeError: [gloo] Timed out waiting 1800000ms for recv operation")
    assert first_cause([lost, hangs]) is hangs


@pytest.mark.parametrize(("code", "signum", "error"), [(1, None, "ValueError: bad"), (None, 9, ""), (3, None, "")])
def test_running_worker_that_may_have_handled_its_exception_is_not_the_cause(
    code: int | None, signum: int | None, error: str
) -> None:
    healthy = replace(BAD, rank=0, code=None, began=99.9, error="OSError: no cache", may_be_handled=True)
    failed = replace(BAD, code=code, signum=signum, error=error)
    assert first_cause([healthy, failed]) is failed


def test_lost_peers_make_a_worker_a_candidate_that_may_have_handled_its_exception() -> None:
    hangs = replace(BAD, code=None, began=10.0, may_be_handled=True)
    lost = replace(BAD, rank=0, error="ConnectionResetError: [Errno 104] Connection reset by peer")
    assert first_cause([lost, hangs]) is hangs
    certain = replace(hangs, rank=1, began=11.0, may_be_handled=False)
    assert first_cause([lost, hangs, certain]) is certain


def test_single_long_line_is_cut() -> None:
    text = failure_text(replace(BAD, tail=["z" * 5000]))
    assert len(text) == LONGEST_FILE
    assert text.endswith("z" * 900)


def test_within_one_moment_a_crash_is_the_cause() -> None:
    crashed = replace(BAD, error="", code=None, signum=11, began=100.1)
    assert first_cause([BAD, crashed]) is crashed
    assert first_cause([BAD, replace(crashed, began=101.0)]) is BAD


@pytest.mark.parametrize(("code", "signum", "expected"), [(3, None, 3), (None, 9, 137), (None, None, 1)])
def test_the_exit_code_is_the_workers_own(code: int | None, signum: int | None, expected: int) -> None:
    assert replace(BAD, code=code, signum=signum).exit_code == expected
