"""Every job has a token, generated for each run, that only its hosts receive."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pytest
from entrypoint_support.host import NETWORK, hosts_file

from smdp_entrypoint.contract.worker_variables import has_engine
from smdp_entrypoint.control.addresses import AddressBook
from smdp_entrypoint.control.link import CallingLink, LinkError, job_key

if TYPE_CHECKING:
    from entrypoint_support.host import Host

NAMES = ["algo-1", "algo-2"]
SHOW = """
import json, os, time
while not os.path.exists(os.environ.get("GO", os.curdir)):
    time.sleep(0.05)
path = os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], os.environ["LOCAL_RANK"] + ".json")
json.dump(os.environ.get("SMDP_JOB_TOKEN"), open(path, "w"))
"""
needs_engine = pytest.mark.skipif(not has_engine(), reason="only smdp-engine needs a token, and it is not installed")


def tokens(hosts: list[Host], **environ: str) -> list[Any]:
    """The tokens of all workers of a successful job, which exit when the workers of all hosts run."""
    go = hosts[0].root / "go"
    go.unlink(missing_ok=True)
    for host in hosts:
        host.lines.clear()
        host.job(SHOW).start(SMDP_WORKERS_PER_HOST="2", GO=str(go), **environ)
    for host in hosts:
        host.wait_for_line('"event": "workers_started"')
    go.touch()
    assert [host.wait() for host in hosts] == [0] * len(hosts), hosts[0].text
    return [host.saved(f"{rank}.json") for host in hosts for rank in range(2)]


@needs_engine
def test_workers_of_all_hosts_share_a_token_that_each_run_generates(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    hosts = cluster(NAMES)
    environ = {"SMDP_HOSTS_FILE": hosts_file(tmp_path / "hosts", NAMES), "TRAINING_JOB_ARN": "arn:of-a-job"}
    first, second = tokens(hosts, **environ), tokens(hosts, **environ)
    for values in (first, second):
        assert len(set(values)) == 1
        assert re.fullmatch("[0-9a-f]{32}", values[0])
    assert first[0] != second[0]
    assert not any(token in host.text for host in hosts for token in (first[0], second[0]))


@needs_engine
def test_single_host_generates_its_token(host: Host) -> None:
    (token,) = set(tokens([host]))
    assert re.fullmatch("[0-9a-f]{32}", token)


def test_configured_token_is_used(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    file = hosts_file(tmp_path / "hosts", NAMES)
    assert tokens(cluster(NAMES), SMDP_HOSTS_FILE=file, SMDP_JOB_TOKEN="5" * 32) == ["5" * 32] * 4


class UnauthenticatedClient:
    """Knows all public names of a job, and connects to its first host from any address."""

    def __init__(self, *names: str) -> None:
        self._key = job_key(None, *names)

    def connect(self, source: str) -> list[dict[str, Any]]:
        """The first messages that the first host sends to it as algo-2; none if that closes the connection."""
        deadline = time.monotonic() + 60
        received: list[dict[str, Any]] = []
        while True:
            assert time.monotonic() < deadline, "the first host does not listen"
            try:
                connection = socket.create_connection((f"{NETWORK}.11", 7778), 5, (source, 0))
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        link = CallingLink(connection, self._key, "algo-2", "algo-1")
        try:
            while time.monotonic() < deadline and not received:
                link.flush()
                received += link.receive()
                time.sleep(0.01)
            link.send("bye")
            link.flush()
        except LinkError:
            pass
        finally:
            link.close()
        return received


@needs_engine
def test_client_at_another_address_gets_no_token(cluster: Callable[[list[str]], list[Host]], tmp_path: Path) -> None:
    file = hosts_file(tmp_path / "hosts", NAMES)
    first, second = cluster(NAMES)
    go = tmp_path / "go"
    first.job(SHOW).start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file, TRAINING_JOB_ARN="arn:of-a-job", GO=str(go))
    client = UnauthenticatedClient("arn:of-a-job", *NAMES)
    assert client.connect(f"{NETWORK}.99") == []
    assert client.connect(f"{NETWORK}.99") == []  # also once the name's address is known
    first.wait_for_line(f"refused a connection from {NETWORK}.99: it claims to be algo-2, which has another address")
    second.job(SHOW).start(SMDP_WORKERS_PER_HOST="2", SMDP_HOSTS_FILE=file, TRAINING_JOB_ARN="arn:of-a-job")
    second.wait_for_line('"event": "workers_started"')
    go.touch()
    assert [first.wait(), second.wait()] == [0, 0]
    assert first.saved("0.json") == second.saved("1.json")


@needs_engine
def test_host_that_connects_after_the_script_has_exited_gets_the_token(
    cluster: Callable[[list[str]], list[Host]],
    tmp_path: Path,
    until: Callable[[Callable[[], Any], str], Any],
) -> None:
    first, _ = cluster(NAMES)
    file = hosts_file(tmp_path / "hosts", NAMES)
    first.job(SHOW).start(SMDP_WORKERS_PER_HOST="1", SMDP_HOSTS_FILE=file, TRAINING_JOB_ARN="arn:of-a-job")
    first.wait_for_line("all workers exited successfully")
    client = UnauthenticatedClient("arn:of-a-job", *NAMES)
    (message,) = until(lambda: client.connect(f"{NETWORK}.12"), "the token")  # the first look-up of the address is late
    assert message["token"] == first.saved("0.json")
    assert first.wait() == 0


@needs_engine
def test_host_without_token_fails_and_names_the_first_host(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path
) -> None:
    _, second = cluster(NAMES)
    second.job(SHOW)
    code = second.run(SMDP_HOSTS_FILE=hosts_file(tmp_path / "hosts", NAMES), SMDP_HOSTS_TIMEOUT="1")
    assert code == 1
    reason = "Host algo-1 did not send the job's token: it did not admit this host within 1 s"
    assert second.failure.startswith(reason)


def test_an_address_book_compares_addresses_in_any_spelling(until: Callable[[Callable[[], Any], str], Any]) -> None:
    known = {"algo-2": {"10.0.0.7", "fd00:0:0::7"}}
    book = AddressBook(Path("unused"), lambda _, host: known[host])
    assert book.has("algo-2", "10.0.0.7") is None
    until(lambda: book.has("algo-2", "10.0.0.7"), "the look-up")
    assert book.has("algo-2", "::ffff:10.0.0.7") is True
    assert book.has("algo-2", "fd00::7") is True
    assert book.has("algo-2", "10.0.0.8") is False
    known["algo-2"] = {"10.0.0.8"}
    until(lambda: book.has("algo-2", "10.0.0.8"), "another look-up after a mismatch")
