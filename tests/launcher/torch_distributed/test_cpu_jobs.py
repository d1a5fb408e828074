"""Jobs with engine gloo on hosts without GPUs: one worker on each host, and limits that are for accelerators only."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from smdp_launch.diagnostics import Severity
from smdp_launch.planning.summary import summary
from tests.conftest import write_job
from tests.launcher.torch_distributed.jobs import AWS_IMAGE, codes, found, on
from tests.support.jobs.plans import NOW, plan_of

GLOO = ("engine: nccl", "engine: gloo")
HOSTS = ("instance_count: 2", "instance_count: 3")
CPUS = (GLOO, on("ml.c5.4xlarge"), HOSTS)
PENDING = ("max_run: 600", "max_run: 600\n  max_pending: 3600")
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"


def rows(folder: Path, *changes: tuple[str, str], more: str = "") -> dict[str, str]:
    text = AWS_IMAGE
    for before, after in changes:
        text = text.replace(before, after)
    return dict(summary(plan_of(write_job(folder, f"{text}{more}"))))


def test_batch_must_be_divisible_by_the_number_of_cpu_hosts(tmp_path: Path) -> None:
    (one,) = found(tmp_path, *CPUS, more="batch: {global: 10, hyperparameter: batch-size}\n")
    assert (one.code, one.message) == ("SMDP506", "a global batch of 10 cannot be shared equally by 3 workers")
    assert one.help == "write 9 or 12"
    assert found(tmp_path, *CPUS, more="batch: {global: 12, hyperparameter: batch-size}\n") == []


def test_batch_of_an_unknown_type_is_not_checked(tmp_path: Path) -> None:
    unknown = found(tmp_path, GLOO, on("ml.c5.3xlarge"), HOSTS, more="batch: {global: 10}\n")
    assert codes(unknown) == ["SMDP301"]


def test_learning_rate_and_warm_up_are_checked_for_cpu_hosts(tmp_path: Path) -> None:
    rate = ("hyperparameters: {epochs: 2}", "hyperparameters: {lr: 0.1}")
    more = "batch: {global: 12, reference_size: 1, reference_learning_rate: 0.1}\n"
    assert codes(found(tmp_path, *CPUS, rate, more=more)) == ["SMDP505", "SMDP511"]


def test_plan_names_workers_of_cpu_hosts(tmp_path: Path) -> None:
    more = "batch: {global: 12}\n"
    assert rows(tmp_path, *CPUS, more=more)["batch"] == "12 in each step, 4 on each worker"
    gpus = rows(tmp_path, on("ml.g5.xlarge"), HOSTS, more=more)
    assert gpus["batch"] == "12 in each step, 4 on each GPU"


def test_workers_on_cpus_train_one_model(tmp_path: Path) -> None:
    script = "import torch\n\nloss = torch.nn.Linear(1, 1)(torch.ones(1, 1)).sum()\nloss.backward()\n"
    script += "torch.optim.SGD([torch.ones(1)], lr=0.1).step()\n"
    (one,) = found(tmp_path, *CPUS, script=script)
    assert one.code == "SMDP440"
    assert "so its 3 workers train 3 separate models" in one.message


def test_max_pending_has_no_effect_on_cpus(tmp_path: Path) -> None:
    (one,) = found(tmp_path, *CPUS, PENDING)
    assert (one.code, one.severity) == ("SMDP607", Severity.WARNING)
    assert one.message == "max_pending has no effect: SageMaker ignores it for types without accelerators"
    ends = rows(tmp_path, *CPUS, PENDING)["ends"]
    assert ends == "no limit: SageMaker does not limit the wait for instances without accelerators"


def test_max_pending_has_no_effect_on_cpus_with_spot(tmp_path: Path) -> None:
    more = "spot: {max_wait: 3600}\ncheckpoint: {s3: s3://bucket/checkpoints}\n"
    (one,) = found(tmp_path, *CPUS, PENDING, more=more)
    assert "types without accelerators" in one.message
    latest = NOW + timedelta(seconds=3600)
    assert rows(tmp_path, *CPUS, PENDING, more=more)["ends"].startswith(f"{latest:%Y-%m-%d %H:%M} UTC at the latest")


@pytest.mark.parametrize(
    "changes",
    [
        (on("ml.g5.xlarge"), PENDING),
        (GLOO, on("ml.c5.4xlarge"), (PENDING[0], f"{PENDING[1]}\n  fallback_types: [ml.g5.xlarge]")),
    ],
    ids=["GPUs", "a fallback with GPUs"],
)
def test_max_pending_limits_the_wait_for_accelerators(changes: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    assert "SMDP607" not in codes(found(tmp_path, *changes))
    latest = NOW + timedelta(seconds=4200)
    assert rows(tmp_path, *changes)["ends"].startswith(f"{latest:%Y-%m-%d %H:%M} UTC at the latest")


def test_wait_for_a_training_plan_has_no_limit(tmp_path: Path) -> None:
    planned = (PENDING[0], f"{PENDING[1]}\n  training_plan: {PLAN}")
    ends = rows(tmp_path, on("ml.p4d.24xlarge"), planned)["ends"]
    assert ends == "no limit: the job waits for the reserved instances of the training plan"


def test_volume_key_is_refused_for_cpu_types_with_local_disks(tmp_path: Path) -> None:
    more = "encryption: {volume_key: 1234abcd-12ab-34cd-56ef-1234567890ab}\n"
    (one,) = found(tmp_path, GLOO, on("ml.r5d.4xlarge"), more=more)
    assert (one.code, one.severity) == ("SMDP322", Severity.ERROR)
    assert one.message == "ml.r5d.4xlarge has local NVMe disks, and SageMaker refuses a key for their volumes"
    assert found(tmp_path, GLOO, on("ml.r5.4xlarge"), more=more) == []
    fallback = on("ml.r5.4xlarge\n  fallback_types: [ml.r5d.4xlarge]")
    (mixed,) = found(tmp_path, GLOO, fallback, more=more)
    assert (mixed.code, mixed.help.startswith("remove the key, or remove these types")) == ("SMDP322", True)
