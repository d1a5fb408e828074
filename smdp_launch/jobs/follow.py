"""Following a job: its status, its log lines and its events, from its name alone.

The follower keeps its place in every stream, so it can be left and taken up again without losing or doubling a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.jobs.clients import Clients
from smdp_launch.jobs.outcome import ENDED, Outcome, outcome
from smdp_launch.jobs.submit import told

LOG_GROUP = "/aws/sagemaker/TrainingJobs"

_STREAM = re.compile(r"(?P<host>algo-\d+)-\d+$")
_PREFIX = re.compile(r"\[[^\]:\s]+(?::(?P<rank>\d{1,9}))?\] ?")
_EVENT = '{"smdp_event":'


@dataclass(frozen=True)
class StatusChanged:
    """The service's secondary status, such as Downloading, with its message."""

    status: str
    message: str
    time_ms: int


@dataclass(frozen=True)
class LogLine:
    """One line of a host's log. ``rank`` is None for what no worker wrote."""

    host: str
    rank: int | None
    text: str
    time_ms: int


@dataclass(frozen=True)
class JobEvent:
    """An event line (docs/events.md). ``fields`` are all its members."""

    host: str
    name: str
    fields: Mapping[str, Any]
    time_ms: int


@dataclass(frozen=True)
class Ended:
    outcome: Outcome


Seen = StatusChanged | LogLine | JobEvent | Ended


def read_line(host: str, message: str, time_ms: int) -> LogLine | JobEvent:
    """A log message as its writer meant it: the entrypoint's ``[host:rank]`` taken off, event lines parsed."""
    prefix = _PREFIX.match(message)
    text = message[prefix.end() :] if prefix else message
    rank = int(prefix["rank"]) if prefix and prefix["rank"] is not None else None
    if text.startswith(_EVENT):
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):  # whatever a script may print, it is at least a line
            fields = None
        if isinstance(fields, dict) and isinstance(fields.get("event"), str):
            return JobEvent(host, fields["event"], fields, time_ms)
    return LogLine(host, rank, text, time_ms)


@dataclass
class Follower:
    """Reads what is new of one job at each ``look``."""

    clients: Clients
    job: str
    _transitions: int = 0
    _cursors: dict[str, str] = field(default_factory=dict)

    def look(self) -> list[Seen]:
        """What has happened since the last look; ``Ended`` is the last of all.

        Raises:
            ServiceProblem: the service does not answer, or does not know the job.
        """
        with told(f"job {self.job} cannot be followed"):
            # Described before the logs are read: when it says that the job has ended, every line is there to read.
            described = self.clients.sagemaker.describe_training_job(TrainingJobName=self.job)
        # By time over all streams; the sort keeps the order within a stream.
        seen = sorted([*self._status_changes(described), *self._new_lines()], key=lambda one: one.time_ms)
        return [*seen, Ended(outcome(described))] if described["TrainingJobStatus"] in ENDED else [*seen]

    def _status_changes(self, described: Mapping[str, Any]) -> list[StatusChanged]:
        transitions = described.get("SecondaryStatusTransitions", [])
        new = transitions[self._transitions :]
        self._transitions = len(transitions)
        return [
            StatusChanged(
                str(one["Status"]), str(one.get("StatusMessage", "")), int(one["StartTime"].timestamp() * 1000)
            )
            for one in new
        ]

    def _new_lines(self) -> Iterator[LogLine | JobEvent]:
        for stream in self._streams():
            match = _STREAM.search(stream)
            host = match["host"] if match else stream
            while batch := self._page(stream):
                yield from (read_line(host, str(one["message"]), int(one["timestamp"])) for one in batch)

    def _page(self, stream: str) -> list[dict[str, Any]]:
        place = {"nextToken": self._cursors[stream]} if stream in self._cursors else {}
        with told(f"the log of {stream} cannot be read"):
            answer = self.clients.logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **place
            )
        self._cursors[stream] = answer["nextForwardToken"]
        found: list[dict[str, Any]] = answer["events"]
        return found

    def _streams(self) -> list[str]:
        """Hosts' streams appear one by one, and the group with the account's first job."""
        from botocore.exceptions import ClientError

        with told(f"the logs of {self.job} cannot be listed"):
            try:
                pages = self.clients.logs.get_paginator("describe_log_streams").paginate(
                    logGroupName=LOG_GROUP, logStreamNamePrefix=f"{self.job}/"
                )
                return sorted(one["logStreamName"] for page in pages for one in page["logStreams"])
            except ClientError as error:
                if error.response["Error"]["Code"] == "ResourceNotFoundException":
                    return []
                raise
