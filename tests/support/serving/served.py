"""A trained model in a local cloud, and its deployment, without a training run of its own for each test."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smdp_launch.checking.job import check_job
from smdp_launch.jobs.records.endpoints import find_served
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.serving.plan import ServingPlan, serving_plan
from smdp_launch.serving.undeploy import undeploy
from tests.conftest import JOB, write_job
from tests.support.services.cloud import Cloud
from tests.support.services.faults import Fault, Policy, Proxy
from tests.support.services.faulty_service import clients_through
from tests.support.waiting import wait_for

NAME = "small-20261127043000-beef"
MODEL_KEY = f"output/{NAME}/output/model.tar.gz"
RUN = "feedfacefeedface"
PACKED_KEY = f"output/{NAME}/serve/model-{RUN}.tar.gz"
SAVES = "import os\nopen(os.environ['SM_MODEL_DIR'] + '/model.txt', 'w').write('trained')\n"
#: The answer is what the model's file contains, and the length of the request's list.
SERVES = (
    "def model_fn(model_dir):\n    return open(model_dir + '/model.txt').read()\n\n\n"
    "def predict_fn(data, model):\n    return [model, len(data)]\n"
)
BREAKS = "def model_fn(model_dir):\n    raise ValueError('no such weights')\n"
SERVE = "serve: {entry: inference.py, instance_type: ml.m5.large, lifetime: 7200}\n"


def archive(content: bytes = b"trained") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        member = tarfile.TarInfo("model.txt")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def served_job(folder: Path, serves: str = SERVES, serve: str = SERVE) -> Path:
    """A job file with a section serve, and both scripts."""
    path = write_job(folder, JOB + serve, SAVES)
    (folder / "src" / "inference.py").write_text(serves)
    return path


@contextmanager
def undeployed_after(cloud: Cloud) -> Iterator[Clients]:
    """Clients of the cloud; at the end the deployment is deleted, and nothing of it may be left."""
    with Proxy(lambda *_: None).running() as proxy:
        clients = clients_through(proxy, cloud)
        yield clients
        undeploy(clients, NAME, find_served(NAME))
    assert left(cloud) == []


def plan_for(cloud: Cloud, folder: Path, serves: str = SERVES, serve: str = SERVE, run: str = RUN) -> ServingPlan:
    """The plan of a deployment to ``cloud`` in place of AWS; its model is in the cloud's S3."""
    cloud.s3.put_object(Bucket="bucket", Key=MODEL_KEY, Body=archive())
    checked = check_job(served_job(folder, serves, serve), environ={})
    return serving_plan(checked, NAME, "us-east-1", f"s3://bucket/{MODEL_KEY}", run=run)


def left(cloud: Cloud) -> list[str]:
    """The resources of the deployment that exist, when an accepted deletion has ended."""
    wait_for(lambda: "Deleting" not in _statuses(cloud), "the end of the deletion")
    models = cloud.sagemaker.list_models(NameContains=NAME)["Models"]
    configs = cloud.sagemaker.list_endpoint_configs(NameContains=NAME)["EndpointConfigs"]
    objects = cloud.s3.list_objects_v2(Bucket="bucket", Prefix=f"output/{NAME}/serve/model").get("Contents", [])
    return [title for title, found in zip(ALL, (objects, models, configs, _statuses(cloud)), strict=True) if found]


def _statuses(cloud: Cloud) -> list[str]:
    return [one["EndpointStatus"] for one in cloud.sagemaker.list_endpoints(NameContains=NAME)["Endpoints"]]


ALL = ["packed model", "model", "endpoint configuration", "endpoint"]


class Moments(Proxy):
    """Calls ``act`` at one moment: before the call with a number reaches the service, or when the service has acted and
    the client does not know it yet. Moments are counted from 0; each call has two."""

    def __init__(self, moment: int | None, act: Callable[[], None]) -> None:
        super().__init__(self._before)
        self.operations: list[str] = []
        self._moment = moment
        self._act = act

    def _before(self, operation: str, _: str) -> Fault | None:
        self._reach(2 * len(self.operations))
        self.operations.append(operation)
        return None

    def note(self, operation: str, status: int) -> None:
        self._reach(2 * len(self.operations) - 1)
        super().note(operation, status)

    def _reach(self, moment: int) -> None:
        if moment == self._moment:
            self._act()

    @property
    def count(self) -> int:
        return 2 * len(self.operations)


def first(fault: Fault, wanted: str) -> Policy:
    """The first call of ``wanted`` fails."""
    state: dict[str, Any] = {}

    def policy(operation: str, _: str) -> Fault | None:
        if operation == wanted and not state:
            state["failed"] = True
            return fault
        return None

    return policy
