"""Each notification of a job is sent once: at its end, and on trouble that is news."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.follow import StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.notifications.notifier import Notifier
from smdp_launch.jobs.notifications.stall import StallWatch
from smdp_launch.jobs.records.history import find_launch, record_launch
from smdp_launch.jobs.records.outcome import Outcome
from tests.conftest import JOB, Command, clean_environment, write_job
from tests.support.json_documents import validator
from tests.support.services.webhook import Webhook

NOW = 1_800_000_000.0
DONE = Outcome("Completed", ExitCode.OK, "completed", billable_seconds=60)
HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]


def follow(
    settings: dict[str, Any] | None, events: list[Any], end: Outcome | None = DONE, where: str = "us-east-1"
) -> list[str]:
    """Show the events to a notifier of the job in the current folder, and return its notes."""
    if find_launch("one") is None:
        more = {} if settings is None else {"notify": json.dumps(settings)}
        record_launch("one", where, "job.yaml", "0" * 64, datetime.now(timezone.utc), **more)
    notes: list[str] = []
    with Notifier(find_launch("one"), notes.append, clock=lambda: NOW) as notifier:
        for event in events:
            notifier.observe(event)
        notifier.tick(NOW)
        if end is not None:
            notifier.end(end, 1.5)
    return notes


@pytest.fixture(autouse=True)
def folder(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Any:
    with Webhook() as made:
        monkeypatch.setenv("TEAM_WEBHOOK", made.address)
        yield made


def interrupted(seconds_ago: float) -> StatusChanged:
    return StatusChanged("Interrupted", "capacity", int((NOW - seconds_ago) * 1000))


def steps(*seconds_ago: float) -> list[JobEvent]:
    return [JobEvent("algo-1", "step", {"step": 1}, int((NOW - one) * 1000), worker=0) for one in seconds_ago]


def test_end_and_trouble_are_sent_once_to_all_receivers(webhook: Webhook) -> None:
    settings = {
        "on": ["end", "trouble"],
        "webhook": "TEAM_WEBHOOK",
        "command": "sh -c 'cat >> messages; echo >> messages'",
    }
    for _ in range(2):  # a second command follows the same job
        assert follow(settings, [interrupted(10), interrupted(5), interrupted(5)]) == []
    wanted = ["spot_interruption", "spot_interruption", "completed"]
    assert [one["kind"] for one in webhook.messages] == wanted
    written = [json.loads(line) for line in Path("messages").read_text().splitlines()]
    assert [one["kind"] for one in written] == wanted
    for one in webhook.messages:
        validator("notification").validate(one)
    assert (webhook.messages[-1]["usd"], webhook.messages[-1]["exit_code"]) == (1.5, 0)


@pytest.mark.parametrize(
    ("settings", "where", "kinds"),
    [
        ({"on": ["end"], "webhook": "TEAM_WEBHOOK"}, "us-east-1", ["completed"]),
        ({"on": ["trouble"], "webhook": "TEAM_WEBHOOK"}, "us-east-1", ["spot_interruption"]),
        ({"on": ["end"], "webhook": "TEAM_WEBHOOK"}, "local", []),
        ({"on": ["end"], "webhook": "TEAM_WEBHOOK", "local": True}, "local", ["completed"]),
        (None, "us-east-1", []),
    ],
)
def test_only_what_was_asked_for_is_sent(webhook: Webhook, settings: Any, where: str, kinds: list[str]) -> None:
    follow(settings, [interrupted(5)], where=where)
    assert [one["kind"] for one in webhook.messages] == kinds


def test_old_trouble_is_not_sent(webhook: Webhook) -> None:
    follow({"on": ["trouble"], "webhook": "TEAM_WEBHOOK"}, [interrupted(901)], None)
    assert webhook.messages == []


def test_stall_and_hang_are_trouble(webhook: Webhook) -> None:
    hang = JobEvent("algo-2", "hang", {"what": "found", "limit": 30.5, "ranks": []}, int(NOW * 1000))
    over = JobEvent("algo-2", "hang", {"what": "over", "seconds": 40.0}, int(NOW * 1000) + 1)
    follow({"on": ["trouble"], "webhook": "TEAM_WEBHOOK"}, [*steps(1000, 990, 980, 970, 960), hang, over], None)
    assert [(one["kind"], one["summary"]) for one in webhook.messages] == [
        ("hang", "it hangs on algo-2"),
        ("stall", "it has reported no step for 16 min"),
    ]
    assert webhook.messages[0]["reason"] == "no progress for 30.5 s; the log has the stacks"


def test_stall_needs_a_usual_interval_and_is_reported_once() -> None:
    watch = StallWatch()
    for at in (0.0, 100.0, 200.0):
        watch.step(at)
    assert watch.stalled_since(10_000) is None  # two intervals are no habit
    watch.step(300.0)
    assert watch.stalled_since(1300) is None
    assert watch.stalled_since(1301) == 300.0
    assert watch.stalled_since(9000) is None
    watch.step(9000.0)
    assert watch.stalled_since(9999) is None
    assert watch.stalled_since(20_000) == 9000.0


def test_error_of_a_receiver_is_a_note_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with Webhook(403) as refusing:
        monkeypatch.setenv("TEAM_WEBHOOK", refusing.address)
        notes = follow({"on": ["end"], "webhook": "TEAM_WEBHOOK", "command": "./nowhere"}, [])
    assert notes == [
        "a notification was not sent: the command cannot be started: No such file or directory",
        "a notification was not sent: the webhook failed: 127.0.0.1 answered with status 403",
    ]


def test_launch_sends_the_end_and_no_output_has_the_address(smdp_launch: Command, job_folder: Path) -> None:
    write_job(
        job_folder, f"{JOB}notify: {{webhook: TEAM_WEBHOOK, local: true}}\n", "raise ValueError('no such luck')\n"
    )
    with Webhook() as webhook:
        environment = clean_environment(TEAM_WEBHOOK=webhook.address)
        ran = smdp_launch(*HERE, env=environment)
        assert ran.returncode == ExitCode.JOB_FAILED
        (message,) = webhook.messages
        validator("notification").validate(message)
        assert (message["kind"], message["where"], message["exit_code"]) == ("failed", "local", 10)
        assert "no such luck" in message["reason"]
        again = smdp_launch("follow", env=environment)
        assert (again.returncode, len(webhook.messages)) == (ExitCode.JOB_FAILED, 1)
    written = "".join(one.read_text(errors="replace") for one in (job_folder / ".smdp").glob("*") if one.is_file())
    assert "secretsecret" not in ran.stdout + ran.stderr + written


def test_launch_without_the_variable_is_refused_before_anything_runs(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, f"{JOB}notify: {{webhook: TEAM_WEBHOOK, local: true}}\n")
    ran = smdp_launch(*HERE, env=clean_environment())
    assert ran.returncode == ExitCode.REFUSED
    assert "notify.webhook names the variable TEAM_WEBHOOK, which is not set" in ran.stderr
    assert find_launch() is None


def test_address_in_the_job_file_is_a_secret(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, f"{JOB}notify: {{webhook: 'https://hooks.example.com/secretsecret'}}\n")
    for arguments in (["validate"], ["validate", "--json"], ["validate", "--format", "sarif"], ["plan", "--json"]):
        ran = smdp_launch(*arguments)
        assert ran.returncode == ExitCode.JOB_FILE_REFUSED
        assert "SMDP701" in ran.stdout + ran.stderr
        assert "secretsecret" not in ran.stdout + ran.stderr
