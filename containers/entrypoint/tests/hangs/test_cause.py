"""Which rank a hanging job waits for."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.settings import HangSettings
from smdp_entrypoint.control.first_host import FirstHost
from smdp_entrypoint.control.link import MESSAGE, CallingLink, ListeningLink, job_key
from smdp_entrypoint.control.peers import PeerLoop, Peers
from smdp_entrypoint.hangs.cause import RankState, causes, failure_text, is_hang, state_messages, summary
from smdp_entrypoint.hangs.watch import HangWatch
from smdp_entrypoint.processes.console import Console


def waiting(rank: int, *ranks: int, host: str = "algo-1") -> RankState:
    return RankState(rank, host, 61.0, 0.4, "exchange", ranks, "all_reduce", "train (train.py:9)")


def computing(rank: int, host: str = "algo-1") -> RankState:
    stack = '  File "/opt/ml/code/train.py", line 7, in compute'
    return RankState(rank, host, 62.0, 0.4, "forward", place="compute (train.py:7)", stack=stack)


def test_rank_that_computes_is_the_cause() -> None:
    states = [waiting(0, 1), computing(1), waiting(2, 3, host="algo-2"), waiting(3, 1, host="algo-2")]
    assert [state.rank for state in causes(states)] == [1]
    assert summary(states) == (
        "hang: rank 1 on algo-1 has made no progress for 62 s (a step usually takes 0.4 s): it is in forward at compute"
        " (train.py:7)"
    )
    assert failure_text(states).splitlines()[1:] == ['  File "/opt/ml/code/train.py", line 7, in compute']
    assert is_hang(failure_text(states))


def test_rank_in_another_exchange_is_the_one_that_all_wait_for() -> None:
    states = [waiting(0, 1), waiting(1), waiting(2, 3), waiting(3, 1)]
    assert [state.rank for state in causes(states)] == [1]
    assert "rank 1 on algo-1" in summary(states)


def test_ranks_that_wait_for_each_other_are_all_named() -> None:
    states = [waiting(0, 1), waiting(1, 0)]
    assert [state.rank for state in causes(states)] == [0, 1]
    assert "rank 0 waits for rank 1 in all_reduce" in summary(states)
    assert "rank 1 waits for rank 0 in all_reduce" in summary(states)


def test_host_whose_ranks_wait_for_another_host_names_that_rank() -> None:
    states = [waiting(2, 3, host="algo-2"), waiting(3, 1, host="algo-2")]
    assert causes(states) == []
    assert summary(states).endswith("they wait for rank 1 on another host")


def test_ranks_that_do_not_know_whom_they_wait_for_are_listed() -> None:
    states = [waiting(rank) for rank in range(5)]
    assert causes(states) == []
    text = summary(states)
    assert "rank 0 on algo-1, rank 1 on algo-1, rank 2 on algo-1 and 2 more ranks have made no progress" in text


def test_rank_that_waits_at_another_place_than_most_is_the_cause_with_another_library() -> None:
    other = RankState(1, "algo-1", 61.0, 0.4, "exchange", (), "recv", "compute (train.py:7)")
    assert [state.rank for state in causes([waiting(0), other, waiting(2)])] == [1]
    assert causes([waiting(0), other]) == []


def test_loaders_worker_is_named() -> None:
    state = RankState(1, "algo-1", 61.0, 0.4, "input", loader="__getitem__ (data.py:14)")
    assert "it waits for its loader, whose worker is at __getitem__ (data.py:14)" in summary([waiting(0, 1), state])


def test_state_survives_its_way_between_hosts() -> None:
    for state in (waiting(3, 1, 2), computing(1)):
        assert RankState.parse(json.loads(json.dumps(state.fields()))) == state


@pytest.mark.parametrize("fields", [{}, {"rank": 1}, {**computing(1).fields(), "waits_for": 3}])
def test_malformed_state_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a rank's state"):
        RankState.parse(fields)


def hanging_host(host: str, first: int, ranks: int) -> list[RankState]:
    """The states of a host's ranks, with stacks of the largest size."""
    stack = "\n".join(f'  File "/opt/ml/code/layers{line}.py", line {line}, in sum_of_gradients' for line in range(20))
    others, place = tuple(range(64)), "sum_of_gradients (layers0.py:1)"
    return [
        RankState(rank, host, 63.2, 0.41, "exchange", others, "allreduce", place, "", stack[:700])
        for rank in range(first, first + ranks)
    ]


def test_hang_of_many_ranks_arrives_whole(messages: list[str]) -> None:
    states = hanging_host("algo-2", 96, 96)
    ends = socket.socketpair()
    ends[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # messages arrive in pieces, as over a network
    listening = ListeningLink(ends[0], job_key("a" * 32), {"algo-2"})
    calling = CallingLink(ends[1], job_key("a" * 32), "algo-2", "algo-1", messages.append)
    received: list[dict[str, Any]] = []
    with ends[0], ends[1]:
        while not calling.proved:
            listening.flush()
            calling.receive()
            calling.flush()
            listening.receive()
        for fields in state_messages(states):
            calling.send(MESSAGE, fields=fields)
        while calling.pending:
            calling.flush()
            received += listening.receive()
        received += listening.receive()
    assert messages == []
    assert [RankState.parse(one) for message in received for one in message["fields"]["states"]] == states


def test_cause_is_named_once_the_states_of_a_whole_host_have_arrived(tmp_path: Path) -> None:
    peers = Peers()
    loop = PeerLoop(FirstHost("algo-1", [], b"", lambda: "127.0.0.1", 0, "", None), lambda text: None)
    peers.join(loop)
    layout = Layout(("algo-1", "algo-2", "algo-3"), "algo-1", 20)
    with (tmp_path / "log").open("wb") as log:
        console = Console(log.fileno(), "algo-1")
        watch = HangWatch(HangSettings("report", 30.0, 10.0), layout, MlTree(tmp_path), console, peers, dict)
        for host, first in (("algo-2", 20), ("algo-3", 40)):
            for message in state_messages(hanging_host(host, first, 20)):
                loop.note_message(host, {"for": "hang", **message})
        watch.turn()
        watch.finish()
        console.drain()
    peers.leave()
    line, event = (tmp_path / "log").read_text().splitlines()
    assert '"hang_cause"' in event
    assert line.endswith("(of the hosts algo-2, algo-3)")
