from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from entrypoint_support.host import Host, processes_with, reserve_port, wait_until


@pytest.fixture
def mark() -> Iterator[str]:
    """A marker in the environment of every process of the test; when the test ends, none may still run."""
    mark = uuid.uuid4().hex
    yield mark
    try:
        wait_until(lambda: not processes_with(mark), "all processes of the test to exit")
    finally:
        for pid in processes_with(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def host(tmp_path: Path, mark: str) -> Iterator[Host]:
    with reserve_port() as reserved:
        host = Host(tmp_path / "ml", mark, master_port=reserved.getsockname()[1])
        yield host
        host.clean_up()


@pytest.fixture
def cluster(tmp_path: Path, mark: str) -> Iterator[Callable[[list[str]], list[Host]]]:
    """A function that creates a host with a tree for each name."""
    hosts: list[Host] = []

    def create(names: list[str]) -> list[Host]:
        hosts.extend(Host(tmp_path / name, mark, name, names) for name in names)
        return hosts

    yield create
    for host in hosts:
        host.clean_up()


@pytest.fixture
def messages() -> list[str]:
    """Pass `messages.append` to a function that takes a callable for log lines."""
    return []


@pytest.fixture
def until() -> Callable[[Callable[[], Any], str], Any]:
    return wait_until
