"""The jobs that resume a job one after another. Each name follows from the job before, so every machine finds them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.records.outcome import ENDED
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.status.description import Description, describe_training_job, description
from smdp_launch.jobs.status.interrupted_resume import is_unknown
from smdp_launch.request.names import job_name

_NAME = re.compile(r"(?P<base>.+)-\d{14}-[0-9a-f]{4}")
_LONGEST_BASE = 43  # characters; the service allows 63 for the whole name


def resumed_name(answer: Mapping[str, Any]) -> str:
    """The name of the job that resumes an ended one.

    It depends on the old job only: a repeated resume, or a retry after a lost answer, means the same job.

    Args:
        answer: of DescribeTrainingJob for the old job.
    """
    old = str(answer["TrainingJobName"])
    match = _NAME.fullmatch(old)
    base = (match["base"] if match else old)[:_LONGEST_BASE]
    ended = answer.get("TrainingEndTime") or answer["CreationTime"]
    return job_name(base, ended, int(hashlib.sha256(old.encode()).hexdigest()[:4], 16))


def is_resumed_from(job: str, old: str) -> bool:
    """Whether ``job`` may be one of the jobs that resume ``old`` one after another, by its name."""
    match, first = _NAME.fullmatch(job), _NAME.fullmatch(old)
    return match is not None and match["base"] == (first["base"] if first else old)[:_LONGEST_BASE]


def last_resumption(clients: Clients, job: str) -> Description:
    """The last job of the chain of resumptions that begins with ``job``: ``job`` itself if it was not resumed.

    Raises:
        ServiceProblem: the service refused, does not know ``job``, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    answer = describe_training_job(clients, job)
    while answer["TrainingJobStatus"] in ENDED:
        try:
            answer = describe_training_job(clients, resumed_name(answer))
        except ServiceProblem as error:
            if not is_unknown(error.__cause__):
                raise
            break
    return description(answer, datetime.now(timezone.utc))
