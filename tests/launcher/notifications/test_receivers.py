"""A message reaches a command, a webhook and an SNS topic, or the reason is reported without the address."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from smdp_launch.errors import Refused
from smdp_launch.jobs.notifications import receivers
from smdp_launch.jobs.notifications.message import Message
from smdp_launch.jobs.notifications.receivers import NotSent, require_webhook, to_command, to_sns, to_webhook
from tests.support.json_documents import validator
from tests.support.services.cloud import is_running
from tests.support.services.webhook import PATH, Webhook
from tests.support.waiting import wait_for

MESSAGE = Message("end", "failed", "bert-1", "us-east-1", "failed", "ValueError: ä\nmore", 10, 60, 60, 1.5)


def pauses() -> tuple[list[float], object]:
    slept: list[float] = []
    return slept, slept.append


@pytest.mark.parametrize(
    ("statuses", "tries", "error"),
    [
        ((200,), 1, None),
        ((204,), 1, None),
        ((503, 0, 200), 3, None),
        ((429, 200), 2, None),
        ((500,), 3, "127.0.0.1 answered with status 500"),
        ((0,), 3, "127.0.0.1 gave no valid answer"),
        ((404,), 1, "127.0.0.1 answered with status 404"),
        ((302,), 1, "127.0.0.1 answered with status 302"),
    ],
)
def test_webhook_gets_the_message_and_only_temporary_errors_are_retried(
    statuses: tuple[int, ...], tries: int, error: str | None
) -> None:
    slept: list[float] = []
    with Webhook(*statuses) as webhook:
        if error is None:
            to_webhook(webhook.address, MESSAGE, slept.append)
        else:
            with pytest.raises(NotSent) as raised:
                to_webhook(webhook.address, MESSAGE, slept.append)
            assert error in str(raised.value)
            assert "secret" not in str(raised.value)
        assert webhook.paths == [PATH] * tries
    assert slept == [1.0, 3.0][: tries - 1]
    for one in webhook.messages:
        validator("notification").validate(one)
        assert (one["kind"], one["text"]) == ("failed", "bert-1 (us-east-1): failed: ValueError: ä")


def test_unreachable_webhook_and_one_that_never_answers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "_WEBHOOK_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NotSent, match=r"127.0.0.1 did not answer within 0.1 s"):
            to_webhook(f"http://127.0.0.1:{port}{PATH}", MESSAGE, lambda _: None)
    with pytest.raises(NotSent, match=r"127.0.0.1 cannot be reached: Connection refused"):
        to_webhook(f"http://127.0.0.1:{port}{PATH}", MESSAGE, lambda _: None)


@pytest.mark.parametrize(
    "value", ["", " ", "hooks.example.com/secret", "ftp://x/secret", "https://", "http://x/secr et", "http://x:y/"]
)
def test_address_of_webhook_is_checked_and_not_repeated(value: str) -> None:
    with pytest.raises(Refused) as refused:
        require_webhook("TEAM_WEBHOOK", {"TEAM_WEBHOOK": value})
    assert "TEAM_WEBHOOK" in str(refused.value)
    assert "secr" not in str(refused.value)


def test_command_gets_the_message_in_its_folder(tmp_path: Path) -> None:
    to_command("sh -c 'cat > \"$0\"' 'the message.json'", tmp_path, MESSAGE)
    written = json.loads((tmp_path / "the message.json").read_text())
    validator("notification").validate(written)
    assert written["usd"] == 1.5


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("./nowhere", "cannot be started: No such file or directory"),
        ("sh -c 'echo broken >&2; exit 3'", "exited with 3: broken"),
    ],
)
def test_failing_command_is_reported(tmp_path: Path, command: str, error: str) -> None:
    with pytest.raises(NotSent, match=error):
        to_command(command, tmp_path, MESSAGE)


def test_slow_command_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "pid"
    for seconds in (0.5, 5.0, 50.0):  # a loaded machine may need longer to start the command's child
        monkeypatch.setattr(receivers, "_COMMAND_TIMEOUT", seconds)
        with pytest.raises(NotSent, match=f"took longer than {seconds:g} s and was ended"):
            to_command("sh -c 'sleep 600 & echo $! > started; mv started pid; wait'", tmp_path, MESSAGE)
        if written.exists():
            break
    child = int(written.read_text())
    wait_for(lambda: not is_running(child), "the end of the command's child")


@mock_aws
def test_topic_gets_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    topic = boto3.client("sns", region_name="eu-west-1").create_topic(Name="training")["TopicArn"]
    queue = boto3.client("sqs", region_name="eu-west-1")
    url = queue.create_queue(QueueName="seen")["QueueUrl"]
    arn = queue.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    boto3.client("sns", region_name="eu-west-1").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    to_sns(topic, MESSAGE)
    (received,) = queue.receive_message(QueueUrl=url)["Messages"]
    envelope = json.loads(received["Body"])
    assert envelope["Subject"] == "bert-1 (us-east-1): failed: ValueError: ?"
    validator("notification").validate(json.loads(envelope["Message"]))
    with pytest.raises(NotSent, match="SNS refused the message"):
        to_sns(topic.replace("training", "elsewhere"), MESSAGE)
