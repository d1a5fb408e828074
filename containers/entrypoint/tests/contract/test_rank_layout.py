from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable

import pytest

from smdp_entrypoint.contract.devices import Devices
from smdp_entrypoint.contract.errors import ContractError
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.platform_files import read_contract
from smdp_entrypoint.contract.rank_layout import Layout, plan_layout
from smdp_entrypoint.contract.settings import Settings

if TYPE_CHECKING:
    from entrypoint_support.host import Host

TWELVE = sorted(f"algo-{number}" for number in range(1, 13))
Plan = Callable[..., Layout]


@pytest.fixture
def plan(host: Host, messages: list[str]) -> Plan:
    def plan(resources: dict[str, Any], gpus: int = 0, neurons: int = 0, environ: Any = None, **flags: Any) -> Layout:
        host.config("resourceconfig.json", {"current_host": "algo-1", "hosts": ["algo-1"], **resources})
        host.config("hyperparameters.json", {name: json.dumps(value) for name, value in flags.items()})
        settings = Settings.from_environment(environ or {})
        return plan_layout(read_contract(MlTree(host.root)), settings, Devices(4, gpus, neurons), messages.append)

    return plan


def test_ranks_follow_the_list_of_hosts_and_not_the_numbers_in_their_names(plan: Plan) -> None:
    assert TWELVE[:4] == ["algo-1", "algo-10", "algo-11", "algo-12"]
    ranks = {name: plan({"hosts": TWELVE, "current_host": name}, gpus=2).ranks for name in TWELVE}
    assert ranks["algo-1"] == [0, 1]
    assert ranks["algo-10"] == [2, 3]
    assert ranks["algo-2"] == [8, 9]
    assert sorted(rank for of_host in ranks.values() for rank in of_host) == list(range(24))


@pytest.mark.parametrize(
    ("gpus", "neurons", "environ", "flags", "workers"),
    [
        (8, 0, {"SMDP_WORKERS_PER_HOST": "3"}, {"sagemaker_mpi_num_of_processes_per_host": 5}, 3),
        (8, 0, {}, {"sagemaker_mpi_num_of_processes_per_host": 5, "sagemaker_mpi_enabled": True}, 5),
        (8, 0, {}, {"sagemaker_distributed_dataparallel_enabled": True}, 8),
        (8, 0, {}, {}, 8),
        (0, 16, {}, {"sagemaker_torch_distributed_enabled": True}, 16),
        (0, 0, {}, {}, 1),
        (8, 0, {"SMDP_WORKERS_PER_HOST": "8"}, {"sagemaker_multi_worker_mirrored_strategy_enabled": True}, 1),
    ],
)
def test_the_number_of_workers(
    plan: Plan, gpus: int, neurons: int, environ: dict[str, str], flags: dict[str, Any], workers: int
) -> None:
    assert plan({}, gpus, neurons, environ, **flags).workers_per_host == workers


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("sagemaker_parameter_server_enabled", "starts no parameter server, and TF_CONFIG is not set"),
        ("sagemaker_pytorch_xla_multi_worker_enabled", "starts no XLA multi-worker launcher"),
    ],
)
def test_unsupported_distribution_is_logged(plan: Plan, messages: list[str], flag: str, expected: str) -> None:
    plan({}, **{flag: True})
    assert f"{flag} is set: this entrypoint {expected}" in messages
    messages.clear()
    plan({}, **{flag: False})
    assert not any(flag in line for line in messages)


def test_job_without_flag_logs_why_it_has_several_workers(plan: Plan, messages: list[str]) -> None:
    plan({}, gpus=4)
    assert "sets no data parallel flag" in messages[-1]
    plan({}, gpus=4, sagemaker_pytorch_ddp_enabled=True)
    assert messages[-1] == "1 host(s), 4 worker(s) on each (one per GPU), world size 4"


def test_invalid_number_of_workers_is_refused(plan: Plan) -> None:
    with pytest.raises(ContractError, match="sagemaker_mpi_num_of_processes_per_host"):
        plan({}, sagemaker_mpi_num_of_processes_per_host="many")


def test_only_groups_of_the_distribution_train_together(plan: Plan) -> None:
    groups = [
        {"instance_group_name": "gpu", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-2", "algo-3"]},
        {"instance_group_name": "cpu", "instance_type": "ml.c5.xlarge", "hosts": ["algo-1"]},
    ]
    resources = {"hosts": ["algo-1", "algo-2", "algo-3"], "instance_groups": groups}
    flags = {"sagemaker_mpi_enabled": True, "sagemaker_distribution_instance_groups": ["gpu"]}
    member = plan({**resources, "current_host": "algo-3", "current_group_name": "gpu"}, 2, **flags)
    assert (member.hosts, member.ranks) == (("algo-2", "algo-3"), [2, 3])
    outsider = plan({**resources, "current_host": "algo-1", "current_group_name": "cpu"}, 2, **flags)
    assert (outsider.hosts, outsider.world_size) == (("algo-1",), 1)
    assert (member.trains, outsider.trains) == (True, False)


def test_groups_without_a_distribution_do_not_train_together(plan: Plan, messages: list[str]) -> None:
    groups = [{"instance_group_name": name, "hosts": [host]} for name, host in (("cpu", "algo-1"), ("gpu", "algo-2"))]
    resources = {"hosts": ["algo-1", "algo-2"], "instance_groups": groups, "current_group_name": "cpu"}
    layout = plan(resources, 4)
    assert (layout.hosts, layout.world_size, layout.trains) == (("algo-1",), 1, False)
    assert "several instance groups and no distribution" in messages[-1]
    assert plan(
        {**resources, "instance_groups": [{"instance_group_name": "cpu", "hosts": ["algo-1", "algo-2"]}]}
    ).trains


def test_unknown_group_of_the_distribution_is_refused(plan: Plan) -> None:
    groups = [{"instance_group_name": name, "hosts": [host]} for name, host in (("cpu", "algo-1"), ("gpu", "algo-2"))]
    resources = {"hosts": ["algo-1", "algo-2"], "instance_groups": groups, "current_group_name": "cpu"}
    for named in (["gpux"], ["gpu", "gpux"]):
        with pytest.raises(ContractError, match=r"groups of the job, which are \['cpu', 'gpu'\], found \[.*'gpux'\]"):
            plan(resources, sagemaker_mpi_enabled=True, sagemaker_distribution_instance_groups=named)
