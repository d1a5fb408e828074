"""What a host reports about its hanging ranks, and when the first host ends the job, by a virtual clock."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Callable, Iterator

import pytest

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.settings import HangSettings
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.hangs import watch as watch_module
from smdp_entrypoint.hangs.cause import RankState, is_hang, state_messages
from smdp_entrypoint.hangs.watch import HangWatch
from smdp_entrypoint.processes.console import Console

HOSTS = ("algo-1", "algo-2", "algo-3")


class OneHost(Peers):
    """Stands for the other hosts: `received` is what they have sent, `sent` what this host has sent to them."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[dict[str, Any]] = []

    def hang_messages(self) -> list[tuple[str, dict[str, Any]]]:
        received, self.received = self.received, []
        return received

    def send(self, host: str, fields: dict[str, Any]) -> None:
        self.sent.append(fields)


class Watched:
    def __init__(self, watch: HangWatch, peers: OneHost, clock: SimpleNamespace, log: Path) -> None:
        self.watch, self.peers, self._clock, self._log = watch, peers, clock, log

    def turns(self, seconds: int, *, wait: bool = True) -> None:
        """`wait`: for the thread that reports a hang."""
        for _ in range(seconds):
            self._clock.now += 1.0
            self.watch.turn()
            if wait and self.watch._thread is not None:
                self.watch._thread.join(60.0)

    def says(self, host: str, **fields: Any) -> None:
        self.peers.received.append((host, {"for": "hang", **fields}))

    def timing(self, rank: int, **fields: Any) -> None:
        event = {"smdp_event": 1, "event": "timing", "rank": rank, "window": 5.0, **fields}
        self.watch.line(rank, json.dumps(event), by_engine=True)

    def events(self, name: str) -> list[dict[str, Any]]:
        texts = [line.partition("] ")[2] for line in self._log.read_text().splitlines()]
        events = [json.loads(text) for text in texts if text.startswith('{"smdp_event":')]
        return [event for event in events if event["event"] == name]

    @property
    def ends_the_job(self) -> bool:
        ending = self.peers.ending
        return ending is not None and is_hang(ending.summary)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    """A function that creates the watch of a host with so many ranks, which the processes from 7 on run."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(watch_module, "time", SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.now))
    logs: list[IO[bytes]] = []
    made: list[HangWatch] = []

    def create(host: str, ranks: int = 1) -> Watched:
        peers, log = OneHost(), (tmp_path / f"{host}.log").open("wb")
        logs.append(log)
        layout = Layout(HOSTS, host, ranks)
        running = dict(enumerate(layout.ranks, start=7))
        settings = HangSettings("end", 60.0, 10.0)
        watch = HangWatch(settings, layout, MlTree(tmp_path), Console(log.fileno(), host), peers, lambda: running)
        monkeypatch.setattr(watch._stacks, "read", lambda workers: [])
        made.append(watch)
        return Watched(watch, peers, clock, Path(log.name))

    yield create
    for watch in made:
        watch.finish()
    for log in logs:
        log.close()


def trained(host: Watched, rank: int) -> None:
    for _ in range(5):
        host.timing(rank, steps=10, forward_s=5.0)
        host.turns(5)


def hanging(rank: int, host: str, *waits_for: int) -> dict[str, Any]:
    (message,) = state_messages([RankState(rank, host, 61.0, 0.4, "exchange", waits_for or (0,), "barrier")])
    return message


def processor_time(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[], float]) -> None:
    monkeypatch.setattr(
        "smdp_entrypoint.hangs.work.cpu_seconds", lambda files, pids, ticks: dict.fromkeys(pids, seconds())
    )


def test_job_does_not_end_while_a_rank_of_any_host_computes_outside_its_steps(
    watched: Callable[[str], Watched],
) -> None:
    first = watched("algo-1")
    first.says("algo-2", **hanging(1, "algo-2"))
    first.says("algo-3", **hanging(2, "algo-3"))
    first.says("algo-3", hang="end", end=False, computing=[2])
    first.says("algo-2", hang="end", end=True, computing=[])
    first.turns(100)
    assert not first.ends_the_job
    first.says("algo-3", hang="end", end=True, computing=[])
    first.turns(100)
    assert first.ends_the_job


@pytest.mark.parametrize("then", [{"hang": "over"}, {"hang": "end", "end": False, "computing": []}])
def test_ranks_that_waited_for_a_computing_rank_have_time_to_make_progress(
    watched: Callable[[str], Watched], then: dict[str, Any]
) -> None:
    first = watched("algo-1")
    first.says("algo-2", **hanging(1, "algo-2"))
    first.says("algo-3", **hanging(2, "algo-3"))
    first.says("algo-3", hang="end", end=True, computing=[2])
    first.says("algo-2", hang="end", end=True, computing=[])
    first.turns(100)
    first.says("algo-3", **then)
    first.turns(50)
    assert not first.ends_the_job
    first.turns(50)
    assert first.ends_the_job


def test_host_that_makes_progress_again_no_longer_ends_the_job(watched: Callable[[str], Watched]) -> None:
    first = watched("algo-1")
    first.says("algo-2", **hanging(1, "algo-2"))
    first.says("algo-3", **hanging(2, "algo-3"))
    first.says("algo-3", hang="end", end=True, computing=[])
    first.says("algo-3", hang="over")
    first.turns(100)
    assert not first.ends_the_job


@pytest.mark.parametrize(("cores", "ends"), [(0.5, False), (0.005, True)], ids=["computes", "waits"])
def test_rank_outside_its_steps_hangs_only_if_it_does_not_compute(
    watched: Callable[[str], Watched], monkeypatch: pytest.MonkeyPatch, cores: float, ends: bool
) -> None:
    host = watched("algo-1")
    processor_time(monkeypatch, lambda: cores * watch_module.time.monotonic())
    trained(host, 0)
    for _ in range(60):
        host.timing(0, other_s=5.0)
        host.turns(5)
    assert host.ends_the_job is ends


def test_busy_loop_after_a_backward_pass_delays_the_end_by_5_minutes(
    watched: Callable[[str], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = watched("algo-1")
    processor_time(monkeypatch, watch_module.time.monotonic)
    trained(host, 0)
    host.timing(0, other_s=5.0)
    host.turns(2 * 60 + 300 - 10)
    assert not host.ends_the_job
    host.turns(15)
    assert host.ends_the_job


@pytest.mark.parametrize("phase", ["input", "forward", "backward", "optimizer"])
def test_rank_that_computes_outside_its_steps_does_not_delay_the_end_if_another_hangs_within_one(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    host = watched("algo-1", 2)
    processor_time(monkeypatch, watch_module.time.monotonic)
    for rank in (0, 1):
        trained(host, rank)
    for _ in range(26):
        host.timing(0, other_s=5.0)  # as the wait for a GPU, which waits for rank 1
        host.timing(1, **{f"{phase}_s": 5.0})
        host.turns(5)
    assert host.ends_the_job


@pytest.mark.parametrize("of_host", ["algo-2", "algo-3"])
def test_hang_within_a_step_of_any_host_ends_the_job(watched: Callable[[str], Watched], of_host: str) -> None:
    first = watched("algo-1")
    first.says("algo-2", **hanging(1, "algo-2"))
    first.says("algo-3", **hanging(2, "algo-3"))
    wishes: dict[str, dict[str, Any]] = {
        "algo-2": {"end": True, "computing": []},
        "algo-3": {"end": True, "computing": [2]},
    }
    wishes[of_host]["at_once"] = True
    for host, wish in wishes.items():
        first.says(host, hang="end", **wish)
    first.turns(5)
    assert first.ends_the_job


def test_host_sends_its_computing_ranks_and_that_the_delay_is_over(
    watched: Callable[[str], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = watched("algo-2")
    processor_time(monkeypatch, watch_module.time.monotonic)
    trained(host, 1)
    host.timing(1, other_s=5.0)
    host.turns(500)
    sent = [fields for fields in host.peers.sent if fields["hang"] == "end"]
    own = {"for": "hang", "hang": "end", "computing": (1,)}
    assert sent == [
        {**own, "end": False, "at_once": False},
        {**own, "end": True, "at_once": False},
        {**own, "end": True, "at_once": True},
    ]


def test_rank_that_computes_within_a_step_hangs(
    watched: Callable[[str], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = watched("algo-1")
    processor_time(monkeypatch, watch_module.time.monotonic)
    trained(host, 0)
    for _ in range(30):
        host.timing(0, forward_s=5.0)
        host.turns(5)
    assert host.ends_the_job


def test_end_of_a_hang_is_sent_after_its_report(
    watched: Callable[[str], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = watched("algo-2")
    may_read = threading.Event()
    monkeypatch.setattr(host.watch._stacks, "read", lambda workers: may_read.wait(60.0) and [])
    trained(host, 1)
    host.turns(70, wait=False)
    host.timing(1, steps=10, forward_s=5.0)
    host.turns(3, wait=False)
    assert "over" not in [fields["hang"] for fields in host.peers.sent]
    may_read.set()
    host.turns(2)
    kinds = [fields["hang"] for fields in host.peers.sent]
    assert kinds[-2:] == ["reported", "over"]


@pytest.mark.parametrize("host", ["algo-1", "algo-2"])
def test_last_step_on_another_host_ends_the_hang(watched: Callable[[str], Watched], host: str) -> None:
    one, other = watched(host), {"algo-1": "algo-2", "algo-2": "algo-1"}[host]
    trained(one, HOSTS.index(host))
    one.turns(70)
    one.says(other, hang="last step")
    one.turns(100)
    assert [event["what"] for event in one.events("hang")] == ["reported", "over"]
    assert not one.ends_the_job


def test_host_without_known_steps_is_asked_and_names_its_rank(watched: Callable[[str], Watched]) -> None:
    first, second = watched("algo-1"), watched("algo-2")
    trained(first, 0)
    second.timing(1, other_s=5.0)
    first.timing(0, exchange_s=5.0)
    first.turns(70)
    second.turns(70)
    assert not second.events("hang")
    assert first.peers.sent == [{"for": "hang", "hang": "report", "seconds": 60.0}] * 2
    second.says("algo-1", hang="report", seconds=60.0)
    second.turns(1)
    second.says("algo-1", hang="report", seconds=60.0)
    second.turns(1)
    (answer,) = second.peers.sent
    assert [event["what"] for event in second.events("hang")] == ["reported"]
    first.says("algo-2", **{name: value for name, value in answer.items() if name != "for"})
    first.turns(70)
    assert first.ends_the_job
    assert first.peers.ending is not None
    assert first.peers.ending.summary.startswith("hang: rank 1 on algo-2 has made no progress: it is at")
    assert [event["ranks"] for event in first.events("hang_cause")] == [[], [1]]
    assert len(first.peers.sent) == 2


def test_first_host_reports_its_ranks_if_only_another_host_hangs(watched: Callable[[str], Watched]) -> None:
    first = watched("algo-1")
    first.says("algo-2", **hanging(1, "algo-2"))
    first.turns(5)
    assert [event["ranks"] for event in first.events("hang_cause")] == [[], [0]]
    assert {"for": "hang", "hang": "report", "seconds": 61.0} in first.peers.sent
    first.says("algo-2", hang="over")
    first.turns(5)  # its own rank does not report steps
    assert [event["what"] for event in first.events("hang")] == ["reported", "over"]
    assert first.peers.sent[-1] == {"for": "hang", "hang": "over"}
    assert len(first.events("hang_cause")) == 2
    first.says("algo-2", **hanging(1, "algo-2"))
    first.turns(5)
    assert [event["what"] for event in first.events("hang")] == ["reported", "over", "reported"]


def test_asked_host_reports_no_rank_that_has_made_progress(watched: Callable[..., Watched]) -> None:
    host = watched("algo-2", 2)
    trained(host, 2)
    host.turns(20)
    trained(host, 3)
    host.says("algo-1", hang="report", seconds=61.0)
    host.turns(1)
    (event,) = host.events("hang")
    assert [one["rank"] for one in event["ranks"]] == [2]
    (answer,) = host.peers.sent
    assert ([one["rank"] for one in answer["states"]], answer["asked"]) == ([2], True)


def test_asked_host_whose_ranks_have_made_progress_answers_without_a_report(watched: Callable[[str], Watched]) -> None:
    host = watched("algo-2")
    trained(host, 1)
    host.says("algo-1", hang="report", seconds=61.0)
    host.turns(1)
    assert host.peers.sent == [{"for": "hang", "hang": "reported", "states": [], "more": False, "asked": True}]
    host.says("algo-1", hang="over")
    host.turns(1)
    assert host.events("hang") == []


def test_asked_host_that_hangs_by_itself_later_reports_once(watched: Callable[[str], Watched]) -> None:
    host = watched("algo-2")
    trained(host, 1)
    host.turns(45)
    host.says("algo-1", hang="report", seconds=61.0)
    host.turns(30)
    assert [event["what"] for event in host.events("hang")] == ["reported"]
    assert [(one["hang"], one.get("asked")) for one in host.peers.sent][:2] == [("reported", True), ("reported", False)]
    host.says("algo-1", hang="over")  # for hosts that do not hang
    host.turns(1)
    assert [event["what"] for event in host.events("hang")] == ["reported"]
    host.timing(1, steps=10, forward_s=5.0)
    host.turns(1)
    assert [event["what"] for event in host.events("hang")] == ["reported", "over"]


def test_end_of_a_hang_follows_an_answer_that_is_still_written(
    watched: Callable[[str], Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = watched("algo-2")
    may_read = threading.Event()
    monkeypatch.setattr(host.watch._stacks, "read", lambda workers: may_read.wait(60.0) and [])
    host.says("algo-1", hang="report", seconds=61.0)
    host.says("algo-1", hang="over")
    host.turns(3, wait=False)
    may_read.set()
    host.turns(2)
    assert [event["what"] for event in host.events("hang")] == ["reported", "over"]
    assert [one["asked"] for one in host.peers.sent] == [True]


def test_messages_of_hosts_that_train_another_model_are_ignored(watched: Callable[[str], Watched]) -> None:
    first = watched("algo-1")
    first.says("algo-9", **hanging(1, "algo-9"))
    first.turns(5)
    assert first.peers.sent == []
    assert first.events("hang_cause") == []


@pytest.mark.parametrize("answers", [True, False])
def test_end_waits_for_the_hosts_that_are_asked(watched: Callable[[str], Watched], answers: bool) -> None:
    first = watched("algo-1")
    first.says("algo-2", **hanging(1, "algo-2"))
    first.says("algo-2", hang="end", end=True, computing=[])
    first.turns(8)
    assert not first.ends_the_job
    if answers:
        first.says("algo-3", **hanging(2, "algo-3"))
    first.turns(1 if answers else 5)
    assert first.ends_the_job


def test_first_host_names_the_ranks_that_all_hosts_wait_for_in_an_event(watched: Callable[[str], Watched]) -> None:
    first = watched("algo-1")
    trained(first, 0)
    first.timing(0, exchange_s=5.0, waits_for=[1], operation="barrier")
    first.turns(70)
    first.says("algo-2", **hanging(1, "algo-2", 2))
    first.turns(5)
    (last,) = state_messages([RankState(2, "algo-3", 61.0, 0.4, "exchange")])
    first.says("algo-3", **last)
    first.turns(5)
    first.says("algo-3", hang="over")
    first.turns(5)
    assert [event["ranks"] for event in first.events("hang_cause")] == [[], [2], []]
