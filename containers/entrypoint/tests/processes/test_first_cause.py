from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import pytest

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.settings import HangSettings
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.processes.child import Child
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.failure import LONGEST_FILE, Failure, failure_text, first_cause
from smdp_entrypoint.processes.failure_file import FailureFile
from smdp_entrypoint.processes.signals import Signals
from smdp_entrypoint.training import Training

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


def test_within_one_moment_an_exception_that_may_be_handled_precedes_lost_peers() -> None:
    hangs = replace(BAD, code=None, began=100.0, may_be_handled=True)
    lost = replace(BAD, rank=0, began=100.05, error="ConnectionResetError: [Errno 104] Connection reset by peer")
    assert first_cause([lost, hangs]) is hangs
    lost_and_hangs = replace(lost, rank=1, code=None, began=99.9, may_be_handled=True)
    assert first_cause([lost, hangs, lost_and_hangs]) is hangs


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


class OtherHost(Peers):
    """Stands for the other host: its failure is certain from the third time on that this host asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self._certain = [2, 2, 1]
        self.reports: list[Report | None] = []

    @property
    def ending(self) -> Report | None:
        precedence = self._certain.pop(0) if len(self._certain) > 1 else self._certain[0]
        return Report("algo-2", 100.0, precedence, 1, "ValueError: the cause")

    def report(self, report: Report | None) -> None:
        self.reports.append(report)


def test_certain_failure_of_another_host_may_arrive_while_the_own_is_determined(
    tmp_path: Path, until: Callable[..., Any]
) -> None:
    script = "printf 'Traceback (most recent call last):\\nOSError: no cache\\n' >&2; sleep 600"
    worker = Child(["/bin/sh", "-c", script], {}, tmp_path, lambda line: None)
    layout = Layout(("algo-1", "algo-2"), "algo-1", 1)
    job: Any = SimpleNamespace(layout=layout, hang=HangSettings("ignore", 60.0, 10.0), stop_budget=60)
    peers = OtherHost()
    try:
        with Path(os.devnull).open("wb") as null:
            console = Console(null.fileno(), "algo-1")
            file = FailureFile(tmp_path / "failure")
            training = Training(job, MlTree(tmp_path), file, console, Signals(), peers)
            training.children.append(worker)

            def has_read() -> bool:
                worker.streams[1].read(time.time())
                return worker.watch.last is not None and worker.watch.last.error != ""

            until(has_read, "the traceback")
            assert training._others_failed() == "another host failed"
    finally:
        worker.clean_up(time.time())
    (report,) = peers.reports
    assert report is not None
    assert report.summary.startswith("OSError: no cache")
