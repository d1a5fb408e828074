"""SageMaker with the jobs of a test among any number of other jobs, which are newer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.status import list_jobs
from tests.support.services.scripted_service import BEGAN, refusal

PAGE = 100


class BusyAccount:
    """Args:
    jobs: descriptions by name.
    others: how many pages of other jobs are listed before these.
    """

    def __init__(self, jobs: Mapping[str, Mapping[str, Any]], others: int = 0) -> None:
        self.jobs, self.others = jobs, others
        self.calls: list[str] = []

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Answer the calls of `list` and of the weekly budget, for each region."""
        clients = Clients(self, None, self, 0.0, lambda _: None, lambda _: None)
        monkeypatch.setattr(list_jobs, "connection", lambda *_: lambda: nullcontext(clients))

    def list_training_jobs(self, NextToken: str = "0", **_: Any) -> dict[str, Any]:  # noqa: N803
        self.calls.append("ListTrainingJobs")
        page = int(NextToken)
        if page < self.others:
            listed = [(f"other-{page}-{one}", "Completed") for one in range(PAGE)]
            return {"TrainingJobSummaries": self._summaries(listed), "NextToken": str(page + 1)}
        return {"TrainingJobSummaries": self._summaries([(job, "") for job in self.jobs])}

    def _summaries(self, listed: list[tuple[str, str]]) -> list[dict[str, Any]]:
        return [
            {"TrainingJobName": job, "TrainingJobStatus": status or self.jobs[job]["TrainingJobStatus"]}
            for job, status in listed
        ]

    def list_hyper_parameter_tuning_jobs(self, **_: Any) -> dict[str, Any]:
        raise AssertionError("there is no sweep")

    def describe_training_job(self, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        self.calls.append("DescribeTrainingJob")
        if TrainingJobName not in self.jobs:
            error = refusal("ValidationException", "Requested resource not found.")
            error.operation_name = "DescribeTrainingJob"
            raise error
        return {"TrainingJobName": TrainingJobName, "CreationTime": BEGAN, **self.jobs[TrainingJobName]}
