"""A service that accepts calls and never answers: timeouts and interrupts still apply."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from botocore.exceptions import ReadTimeoutError

from smdp_launch import ServiceProblem
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.service import retry
from smdp_launch.jobs.service.retry import call_with_retries
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from tests.conftest import LAUNCHER, Command, clean_environment
from tests.support.services.silent import Silent, clients_of


@pytest.fixture
def silent() -> Iterator[Silent]:
    with Silent().listening() as service:
        yield service


def environment(silent: Silent) -> dict[str, str]:
    return clean_environment(AWS_ENDPOINT_URL=silent.url, AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")


@pytest.mark.runs
def test_follow_timeout_ends_follower(silent: Silent, smdp_launch: Command) -> None:
    ran = smdp_launch("follow", "job-1", "--timeout", "10", "--region", "us-east-1", env=environment(silent))
    assert ran.returncode == ExitCode.WAIT_TIMED_OUT, ran.stderr
    assert "job-1 has not ended within 10 s; it continues" in ran.stderr
    assert silent.calls == 1


def test_interrupt_ends_follower(silent: Silent) -> None:
    with subprocess.Popen(
        [LAUNCHER, "follow", "job-1", "--region", "us-east-1"],
        env=environment(silent),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert silent.asked.wait(60)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == ExitCode.INTERRUPTED
    assert silent.calls == 1


def test_call_fails_when_all_tries_exceed_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit includes the first try, which may be the longest."""
    clients = clients_of("http://127.0.0.1:1")
    clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.01, total=0.2)
    tries: list[None] = []
    clock = lambda: 0.3 * len(tries)  # noqa: E731
    monkeypatch.setattr(retry, "time", SimpleNamespace(time=clock, monotonic=clock))

    def hangs() -> None:
        tries.append(None)
        raise ReadTimeoutError(endpoint_url="http://127.0.0.1:1")

    with pytest.raises(ServiceProblem, match=r"\(1 tries in 0 s\)"):
        call_with_retries(clients, "it is not known", hangs)
    tries.clear()
    with pytest.raises(ServiceProblem, match=r"\(2 tries in 0 s\)"):
        call_with_retries(clients, "it is not there", hangs, is_transfer=True)
    assert len(tries) == 2
