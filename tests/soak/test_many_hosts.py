"""Many simulated hosts start, compute a sum and exit in one run, each worker with the engine and without torch."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from smdp_launch.localcloud.client.connect import private
from tests.support.services.cloud import BUCKET, Cloud

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(importlib.util.find_spec("smdp_engine") is None, reason="smdp-engine is not installed"),
]
WORKER = Path(__file__).parent / "many_hosts_worker.py"
WORKERS = 8
HOSTS = (2, 8, 32, 64)
TIMEOUT_S = 600.0
# On a small machine hundreds of processes start slowly.
ENVIRONMENT = {
    "SMDP_WORKERS_PER_HOST": str(WORKERS),
    "SMDP_RENDEZVOUS_TIMEOUT_S": "300",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with ExitStack() as stack:
        found = Cloud(stack.enter_context(private(tmp_path_factory.mktemp("many") / "state")))
        found.s3.create_bucket(Bucket=BUCKET)
        yield found


@pytest.mark.parametrize("hosts", HOSTS)
def test_workers_of_many_hosts_compute_one_sum(cloud: Cloud, hosts: int) -> None:
    name = f"many-{hosts}"
    request = cloud.request(name, WORKER.read_text(), hosts=hosts, Environment=ENVIRONMENT)
    cloud.sagemaker.create_training_job(**request)
    job = cloud.wait(name, TIMEOUT_S)
    lines = cloud.log(name)
    with contextlib.suppress(KeyError):
        pytest.fail(job["FailureReason"])
    assert job["TrainingJobStatus"] == "Completed"
    workers = [line.split("]")[0] for line in lines if line.endswith(f"] checked {hosts}")]
    assert len(set(workers)) == len(workers) == hosts * WORKERS
    steps = {one["Status"]: one for one in job["SecondaryStatusTransitions"]}
    training = steps["Training"]
    seconds = (training["EndTime"] - training["StartTime"]).total_seconds()
    print(f"\n{hosts:>3} hosts x {WORKERS}: {seconds:6.1f} s of training, {seconds / hosts:.2f} s a host")
