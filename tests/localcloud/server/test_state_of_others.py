"""State that another user has created or may change is refused before any read, write, request or signal."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.localcloud.client import shared
from smdp_launch.localcloud.client.connect import LocalCloudError, private, running
from smdp_launch.localcloud.files import Lock
from smdp_launch.localcloud.layout import JobFolder, StateFolder
from smdp_launch.private_files import NotPrivate, make_folder, open_file, read_bytes
from tests.conftest import Command, command_in, write_job
from tests.support.other_user import needs_another_user, run_as_other, shared_folder, start_as_other
from tests.support.services.cloud import is_running

RUN = ("launch", "--local", "--hosts", "1", "--workers-per-host", "1")

#: A state folder in which a server seems to run: it holds the lock, counts the bytes it receives, and names a process.
LURE = """
os.makedirs(".smdp/local/jobs")
lock = open(".smdp/local/server.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
for name in ("clients", "spawn", "shutdown"):
    open(f".smdp/local/{name}.lock", "w").close()
server = socket.create_server(("127.0.0.1", 0))
server.settimeout(0.1)
record = {"url": f"http://127.0.0.1:{server.getsockname()[1]}", "access_key": "A", "secret_key": "S",
          "region": "us-east-1", "pid": int(sys.argv[1])}
with open(".smdp/local/server.json", "w") as file:
    json.dump(record, file)
print("ready", flush=True)
os.set_blocking(0, False)
received = 0
while sys.stdin.read(1) != "x":
    try:
        client, _ = server.accept()
    except TimeoutError:
        continue
    received += len(client.recv(65536))
    client.close()
print(received, flush=True)
"""


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this test that is not part of the local cloud."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate(b"\n")
    assert process.returncode == 0, "a process that is no server was signalled"


@pytest.fixture
def shared_by_all() -> Iterator[Path]:
    with shared_folder() as folder:
        write_job(folder)
        yield folder


@contextmanager
def lure(folder: Path, pid: int) -> Iterator[Callable[[], int]]:
    """Run the other user's server in the folder; the function ends it and returns the number of bytes received."""
    process = start_as_other(LURE, folder, str(pid))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield lambda: int(process.communicate("x")[0])
    finally:
        process.kill()
        process.wait()


@needs_another_user
@pytest.mark.parametrize("arguments", [RUN, ("local", "down"), ("local", "status"), ("local", "up"), ("list",)])
def test_a_state_folder_of_another_user_is_refused(
    shared_by_all: Path, bystander: subprocess.Popen[bytes], arguments: tuple[str, ...]
) -> None:
    with lure(shared_by_all, bystander.pid) as bytes_sent:
        ran = command_in(shared_by_all)(*arguments)
        assert (ran.returncode, bytes_sent()) == (ExitCode.ENVIRONMENT, 0), ran.stderr
    shown = ran.stderr.replace("\n", " ")
    assert f"{shared_by_all}/.smdp belongs to another user (uid 65534" in shown


@needs_another_user
def test_a_named_state_folder_of_another_user_is_refused(
    shared_by_all: Path, bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, smdp_launch: Command
) -> None:
    monkeypatch.setenv("SMDP_LOCAL_STATE", str(shared_by_all / ".smdp/local"))
    with lure(shared_by_all, bystander.pid) as bytes_sent:
        for arguments in (RUN, ("local", "down"), ("local", "status")):
            ran = smdp_launch(*arguments)
            assert ran.returncode == ExitCode.ENVIRONMENT, ran.stderr
            assert "belongs to another user" in ran.stderr.replace("\n", " ")
        assert bytes_sent() == 0


@needs_another_user
def test_folder_writable_by_others_is_refused(shared_by_all: Path, smdp_launch: Command) -> None:
    state = shared_by_all / ".smdp"
    state.mkdir()
    state.chmod(0o777)
    run_as_other("open('.smdp/history.jsonl', 'w').close()", shared_by_all)
    ran = command_in(shared_by_all)(*RUN)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert f"other users can write {state} (mode 0777)" in ran.stderr.replace("\n", " ")
    state.chmod(0o700)  # what was put there meanwhile is found
    ran = command_in(shared_by_all)(*RUN)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert f"{state}/history.jsonl belongs to another user" in ran.stderr.replace("\n", " ")
    assert (state / "history.jsonl").read_text() == ""


@needs_another_user
def test_history_is_not_written_through_a_link_of_another_user(shared_by_all: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.write_text("ours\n")
    make = "os.mkdir('.smdp'); os.symlink(sys.argv[1], '.smdp/history.jsonl')"
    run_as_other(make, shared_by_all, str(ours))
    assert command_in(shared_by_all)(*RUN).returncode == ExitCode.ENVIRONMENT
    assert ours.read_text() == "ours\n"


@pytest.mark.parametrize("name", ["history.jsonl", "local", "local/server.json", "local/clients.lock", "local/s3"])
def test_link_in_the_state_folder_is_not_followed(
    job_folder: Path, smdp_launch: Command, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    link = job_folder / ".smdp" / name
    link.parent.mkdir(mode=0o700, parents=True)
    link.symlink_to(elsewhere if name in ("local", "local/s3") else elsewhere / "file")
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.ENVIRONMENT, ran.stderr
    assert f"{link} is a symbolic link" in ran.stderr.replace("\n", " ")
    assert list(elsewhere.iterdir()) == []


def test_state_folder_may_be_below_a_link_but_not_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(LocalCloudError, match="is a symbolic link"), private(tmp_path / "link"):
        pass
    with private(tmp_path / "link/state") as endpoint:
        assert endpoint.state_dir == tmp_path / "real/state"


def test_empty_folder_becomes_private_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o775)
    make_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_folder_with_contents_writable_by_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o775)
    (folder / "server.json").touch()
    for _ in range(2):
        with pytest.raises(NotPrivate, match=r"other users can write .* `chmod go-w "):
            make_folder(folder)


def test_file_that_is_writable_by_others_or_not_regular_is_refused(tmp_path: Path) -> None:
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.touch()
    file.chmod(0o622)
    os.mkfifo(pipe, 0o600)
    with pytest.raises(NotPrivate, match="other users can write"):
        read_bytes(file)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(NotPrivate, match="is no regular file"):
            open_file(pipe, flags)


def test_down_signals_only_the_server(
    state_dir: Path, bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_EXIT_WAIT", 0.2)
    with private(state_dir) as endpoint:
        record = state_dir / "server.json"
        known = record.read_text()
        record.write_text(json.dumps({**json.loads(known), "pid": bystander.pid}))
        with pytest.raises(LocalCloudError, match="does not end"):
            shared.down(state_dir)
        assert is_running(endpoint.pid)
        record.write_text(known)
        shared.down(state_dir)
        assert not is_running(endpoint.pid)


def test_paused_server_is_ended(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_EXIT_WAIT", 0.2)
    endpoint = shared.up(state_dir)
    os.kill(endpoint.pid, 19)
    shared.down(state_dir)
    assert not is_running(endpoint.pid)


def test_only_the_supervisor_of_a_job_is_killed(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    folder = JobFolder(tmp_path)
    started = int(Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
    folder.pid.write_text(json.dumps({"pid": bystander.pid, "start_time": started}))
    Lock(folder.lock).release()
    shared._kill_supervisor(folder)
    assert is_running(bystander.pid)


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers each connection with the next answer; its address, and the requests received."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                client, _ = server.accept()
                with client:
                    received.append(client.recv(65536))
                    client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", received


def test_server_without_the_secret_gets_only_a_proof_request(state_dir: Path) -> None:
    """As after the death of a server whose port now belongs to another user's process."""
    endpoint = shared.up(state_dir)
    record = state_dir / "server.json"
    known = json.loads(record.read_text())
    with answering(b"HTTP/1.1 200 -\r\nContent-Length: 64\r\n\r\n" + b"0" * 64) as (url, received):
        record.write_text(json.dumps({**known, "url": url}))
        assert running(StateFolder(state_dir)) is None
    assert [one.split()[0] for one in received] == [b"GET"]
    assert endpoint.secret_key.encode() not in received[0]
    assert endpoint.access_key.encode() not in received[0]
    record.write_text(json.dumps(known))
    assert running(StateFolder(state_dir)) == endpoint
    shared.down(state_dir)
