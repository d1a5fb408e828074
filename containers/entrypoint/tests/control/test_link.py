"""The two ends of a connection accept each other only if both have the job's key."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any, Iterator

import pytest

from smdp_entrypoint.control.link import CallingLink, Link, LinkError, ListeningLink, job_key
from smdp_entrypoint.control.reports import Report, first_report
from smdp_entrypoint.processes.failure import LOST_PEER, MAY_BE_HANDLED

KEY, OTHER_KEY = job_key("a" * 32), job_key("b" * 32)
REPORT = Report("algo-2", 100.0, 1, 1, "bad")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, two = socket.socketpair()
    with one, two:
        yield one, two


def converse(listening: Link, calling: Link, rounds: int = 3) -> None:
    for _ in range(rounds):
        for link in (listening, calling):
            link.flush()
        for link in (calling, listening):
            assert link.receive() == []


def test_peers_with_the_key_exchange_messages(ends: tuple[socket.socket, socket.socket]) -> None:
    listening, calling = ListeningLink(ends[0], KEY, {"algo-2"}), CallingLink(ends[1], KEY, "algo-2", "algo-1")
    converse(listening, calling)
    assert (listening.host, calling.host) == ("algo-2", "algo-1")
    calling.send("failed", **REPORT.fields())
    calling.flush()
    (message,) = listening.receive()
    assert message["is"] == "failed"
    assert Report.parse(message) == REPORT


@pytest.mark.parametrize(
    ("key", "name", "reason"),
    [(OTHER_KEY, "algo-2", "the connecting side does not have"), (KEY, "algo-9", "the connecting side does not have")],
)
def test_client_without_the_key_or_of_another_job_is_refused(
    ends: tuple[socket.socket, socket.socket], key: bytes, name: str, reason: str
) -> None:
    listening, calling = ListeningLink(ends[0], KEY, {"algo-2"}), CallingLink(ends[1], key, name, "algo-1")
    with pytest.raises(LinkError, match=reason):
        converse(listening, calling)
    assert not listening.proved
    assert not calling.proved


def test_listening_side_without_the_key_is_refused(ends: tuple[socket.socket, socket.socket]) -> None:
    calling = CallingLink(ends[1], KEY, "algo-2", "algo-1")
    ends[0].sendall(b'{"nonce": "1"}\n{"proof": "2"}\n')
    with pytest.raises(LinkError, match="the listening side does not have"):
        calling.receive()


@pytest.mark.parametrize("bytes_", [b"x\n", b"[1]\n", b"[" * 50_000 + b"\n", b"\xff\n", b"x" * 65_600])
def test_malformed_message_closes_the_connection(ends: tuple[socket.socket, socket.socket], bytes_: bytes) -> None:
    link = ListeningLink(ends[0], KEY, {"algo-2"})
    ends[1].sendall(bytes_)
    with pytest.raises(LinkError, match="message"):
        while True:
            link.receive()


def test_message_above_the_limit_is_not_sent_and_the_connection_stays(
    ends: tuple[socket.socket, socket.socket], messages: list[str]
) -> None:
    listening = ListeningLink(ends[0], KEY, {"algo-2"})
    calling = CallingLink(ends[1], KEY, "algo-2", "algo-1", messages.append)
    converse(listening, calling)
    calling.send("message", fields={"text": "x" * 65_536})
    calling.send("alive")
    calling.flush()
    assert listening.receive() == [{"is": "alive"}]
    assert len(messages) == 1
    assert messages[0].startswith("a message to algo-1 is not sent: it has 655")


@pytest.mark.parametrize(
    "change",
    [{"began": "soon"}, {"began": float("nan")}, {"code": 0}, {"code": 1e400}, {"summary": ""}, {"precedence": None}],
)
def test_malformed_report_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not a report|could not convert"):
        Report.parse({**REPORT.fields(), **change})


def test_earliest_report_is_first_and_a_crash_precedes_others_of_the_same_moment() -> None:
    later = Report("algo-1", 100.1, 0, 137, "killed")
    assert first_report([REPORT, later]) == later
    assert first_report([REPORT, Report("algo-1", 101.0, 0, 137, "killed")]) == REPORT


def test_exception_that_may_be_handled_counts_only_beside_lost_peers() -> None:
    handled = Report("algo-1", 90.0, MAY_BE_HANDLED, 1, "OSError: no cache")
    later = replace(REPORT, began=100.0)
    assert first_report([handled, later]) == later
    lost = replace(later, precedence=LOST_PEER)
    assert first_report([lost, handled]) == handled
    assert first_report([replace(lost, began=89.9), handled]) == handled
