"""Two ends of a connection let each other in only if both have the job's key."""

from __future__ import annotations

import socket
from typing import Any, Iterator

import pytest

from smdp_entrypoint.control.link import CallingLink, Link, LinkError, ListeningLink, job_key
from smdp_entrypoint.control.reports import Report, first_report

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


def test_both_have_the_key(ends: tuple[socket.socket, socket.socket]) -> None:
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
    [(OTHER_KEY, "algo-2", "the caller does not have"), (KEY, "algo-9", "the caller does not have")],
)
def test_a_caller_without_the_key_or_of_another_job(
    ends: tuple[socket.socket, socket.socket], key: bytes, name: str, reason: str
) -> None:
    listening, calling = ListeningLink(ends[0], KEY, {"algo-2"}), CallingLink(ends[1], key, name, "algo-1")
    with pytest.raises(LinkError, match=reason):
        converse(listening, calling)
    assert not listening.proved
    assert not calling.proved


def test_who_answers_must_have_the_key_too(ends: tuple[socket.socket, socket.socket]) -> None:
    calling = CallingLink(ends[1], KEY, "algo-2", "algo-1")
    ends[0].sendall(b'{"nonce": "1"}\n{"proof": "2"}\n')
    with pytest.raises(LinkError, match="who answers does not have"):
        calling.receive()


@pytest.mark.parametrize("bytes_", [b"x\n", b"[1]\n", b"[" * 50_000 + b"\n", b"\xff\n", b"x" * 65_600])
def test_what_is_no_message_ends_the_connection(ends: tuple[socket.socket, socket.socket], bytes_: bytes) -> None:
    link = ListeningLink(ends[0], KEY, {"algo-2"})
    ends[1].sendall(bytes_)
    with pytest.raises(LinkError, match="message"):
        while True:
            link.receive()


@pytest.mark.parametrize(
    "change",
    [{"began": "soon"}, {"began": float("nan")}, {"code": 0}, {"code": 1e400}, {"summary": ""}, {"precedence": None}],
)
def test_what_is_no_report_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no report|could not convert"):
        Report.parse({**REPORT.fields(), **change})


def test_the_earliest_report_wins_and_within_a_moment_the_crash() -> None:
    later = Report("algo-1", 100.1, 0, 137, "killed")
    assert first_report([REPORT, later]) == later
    assert first_report([REPORT, Report("algo-1", 101.0, 0, 137, "killed")]) == REPORT
