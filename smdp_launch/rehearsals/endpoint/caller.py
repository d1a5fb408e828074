"""A caller of an endpoint that sends the same request again and again, without retries."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from smdp_launch.plain_text import without_controls

_INTERVAL = 0.1  # seconds between an answer and the next request
_LONGEST_MESSAGE = 200  # characters of an error in a report


@dataclass(frozen=True)
class Request:
    """What is sent. `content_type` is its MIME type."""

    body: bytes
    content_type: str


@dataclass(frozen=True)
class Call:
    """One request.

    Args:
        sent, ended: seconds since 1970.
        error: why there was no answer, such as ``ServiceUnavailable (503): ...``; empty for an answer.
    """

    sent: float
    ended: float
    error: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.sent


class Caller:
    """Calls from `start` to `stop`, one request at a time. Any thread may read `calls`."""

    def __init__(self, runtime: Any, name: str, request: Request) -> None:
        """``runtime``: a client of ``sagemaker-runtime`` that tries once."""
        self._runtime = runtime
        self._name = name
        self._request = request
        self._calls: list[Call] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def calls(self) -> Sequence[Call]:
        return self._calls.copy()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when the request in progress has ended, which the client's timeouts ensure."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            sent = time.time()
            error = self._error()
            self._calls.append(Call(sent, time.time(), error))
            self._ended.wait(_INTERVAL)

    def _error(self) -> str:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._runtime.invoke_endpoint(
                EndpointName=self._name, Body=self._request.body, ContentType=self._request.content_type
            )
            answer["Body"].read()
        except ClientError as error:
            found, status = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
            text = without_controls(str(found.get("Message", "")))[:_LONGEST_MESSAGE]
            return f"{found.get('Code')} ({status}): {text}"
        except (BotoCoreError, OSError) as error:
            return f"{type(error).__name__}: {without_controls(str(error))[:_LONGEST_MESSAGE]}"
        return ""


def answered_since(calls: Sequence[Call], moment: float, most: int) -> bool:
    """Whether the last ``most`` requests were sent after ``moment``, and all of them were answered."""
    last = calls[-most:]
    return len(last) == most and all(one.sent > moment and not one.error for one in last)


def answers_nothing(calls: Sequence[Call], most: int) -> bool:
    """Whether the model failed for each of the last ``most`` requests, and no request was answered before."""
    last = [one.error for one in calls[-most:]]
    has_answer = any(not one.error for one in calls)
    return not has_answer and len(last) == most and all(one.startswith("ModelError") for one in last)


def longest_gap(calls: Sequence[Call]) -> float:
    """The longest time in seconds in which requests failed, from one answer to the next. It begins with the first
    request if that failed."""
    longest, before, has_failed = 0.0, calls[0].sent if calls else 0.0, False
    for one in calls:
        if one.error:
            has_failed = True
            continue
        if has_failed:
            longest = max(longest, one.ended - before)
        before, has_failed = one.ended, False
    return longest


def errors(calls: Sequence[Call]) -> list[tuple[str, int]]:
    """Each error with its number, the most frequent first."""
    return Counter(one.error for one in calls if one.error).most_common()
