"""A wait for capacity in the local cloud, and the jobs that it created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3

from smdp_launch.checking.job import check_job
from smdp_launch.jobs.capacity import CapacityWait, Pauses, Region, Waits
from smdp_launch.jobs.service.clients import Clients, connect_aws
from smdp_launch.planning.prepare import make_plan
from smdp_launch.testing import LocalCloud
from tests.conftest import JOB, write_job

NONE_IN_EAST = "capacity: {us-east-1: {ml.p4d.24xlarge: 0}}\ncapacity_wait: 0\n"
#: In AWS's own images, which each region has.
NCCL = JOB.replace("engine: native", "engine: nccl").replace("image: ", "# image: ").replace('"2.0.1"', '"2.5.1"')
QUICK = Pauses(first=0.1, longest=0.2, poll=0.05, longest_pending=60.0, stopping=30.0)


def account(cloud: LocalCloud, text: str) -> None:
    (cloud.state / "account.yaml").write_text(text)


def region_of(clients: Clients) -> str:
    return str(clients.sagemaker.meta.region_name)


def jobs(*regions: str) -> list[tuple[str, dict[str, Any]]]:
    """The descriptions of all jobs of these tests' name, by region, in the order of their creation."""
    found = []
    for region in regions:
        sagemaker = boto3.client("sagemaker", region_name=region)
        listed = sagemaker.list_training_jobs(NameContains="small", MaxResults=100)["TrainingJobSummaries"]
        found += [(region, sagemaker.describe_training_job(TrainingJobName=one["TrainingJobName"])) for one in listed]
    return sorted(found, key=lambda one: one[1]["CreationTime"])


class Wait:
    """A wait for the job of the current folder in regions, and what it reported."""

    def __init__(self, *regions: str, total: float = 60.0, text: str = NCCL, pauses: Pauses = QUICK) -> None:
        self.reported: list[Waits] = []
        self.names: list[str] = []
        self.regions = [Region(connect_aws(one), self._plan(one, text)) for one in regions]
        self.wait = CapacityWait(self.regions, total, self.reported.append, pauses)

    def _plan(self, region: str, text: str) -> Callable[[], Any]:
        def plan() -> Any:
            made = make_plan(check_job(write_job(Path.cwd(), text), settings=[f"region={region}"]))
            self.names.append(made.job)
            return made

        return plan

    def created(self) -> list[tuple[str, dict[str, Any]]]:
        regions = {region_of(one.clients) for one in self.regions}
        return [one for one in jobs(*regions) if one[1]["TrainingJobName"] in self.names]
