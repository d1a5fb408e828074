"""An interrupt before the job exists creates none; a later interrupt names the job."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import LAUNCHER, write_job
from tests.support.jobs.service import environment, name_of
from tests.support.services.cloud import Cloud
from tests.support.services.faults import Fault, Policy, Proxy
from tests.support.services.faulty_service import cloud_with_data


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("interrupts") / "state") as made:
        yield made


@contextmanager
def launching(cloud: Cloud, folder: Path, policy: Policy) -> Iterator[tuple[subprocess.Popen[str], Proxy]]:
    write_job(folder, script="print('trained')\n")
    with Proxy(policy).running() as proxy:
        given = environment(cloud, proxy, folder, cloud.endpoint.access_key)
        command = [LAUNCHER, "launch", "--yes"]
        with subprocess.Popen(
            command, cwd=folder, env=given, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as running:
            yield running, proxy


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_during_upload_creates_no_job(cloud: Cloud, job_folder: Path, sent: signal.Signals) -> None:
    upload_started, upload_allowed = threading.Event(), threading.Event()

    def policy(operation: str, _: str) -> None:
        if operation == "PUT":
            upload_started.set()
            upload_allowed.wait(60)

    with launching(cloud, job_folder, policy) as (running, proxy):
        assert upload_started.wait(60)
        running.send_signal(sent)
        with suppress(subprocess.TimeoutExpired):  # a client that waits for the upload exits after it
            running.wait(5)
        upload_allowed.set()
        assert running.wait(60) == ExitCode.INTERRUPTED
    assert proxy.accepted["CreateTrainingJob"] == 0


def test_interrupt_between_two_tries_names_the_command_that_shows_the_job(cloud: Cloud, job_folder: Path) -> None:
    with launching(cloud, job_folder, refusing("CreateTrainingJob")) as (running, proxy):
        assert running.stderr is not None
        assert any("retrying in" in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        output = running.stderr.read()
        assert running.wait(60) == ExitCode.INTERRUPTED
    assert f"run smdp-launch status {name_of(job_folder)} to see whether the job exists" in output
    assert proxy.accepted["CreateTrainingJob"] == 0


def refusing(operation: str) -> Callable[[str, str], Fault | None]:
    return lambda called, _: Fault.THROTTLED if called == operation else None
