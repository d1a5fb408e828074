from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from smdp_entrypoint.contract.errors import ContractError
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.platform_files import read_contract, read_resources
from smdp_entrypoint.contract.settings import Settings

if TYPE_CHECKING:
    from conftest import Host


def test_what_older_platforms_leave_out_is_filled_in(host: Host) -> None:
    host.config("resourceconfig.json", {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]})
    contract = read_contract(MlTree(host.root))
    assert contract.resources.instance_type == "local"
    assert contract.resources.group == "homogeneousCluster"
    assert contract.resources.interface is None
    assert contract.channels == {}
    assert contract.hyperparameters.script == {}
    assert contract.checkpoints == host.root / "checkpoints"


def test_a_checkpoint_folder_below_opt_ml_moves_with_the_tree(host: Host) -> None:
    host.job()
    host.config("checkpointconfig.json", {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/kept/here"})
    assert read_contract(MlTree(host.root)).checkpoints == host.root / "kept/here"
    host.config("checkpointconfig.json", {"S3Uri": "s3://b/c", "LocalPath": "/scratch"})
    assert read_contract(MlTree(host.root)).checkpoints == Path("/scratch")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "must hold a JSON object, found list"),
        ({"hosts": ["a"], "current_host": "b"}, "\"current_host\" is 'b', which is not one of the hosts"),
        ({"hosts": "a", "current_host": "a"}, '"hosts" must be a list of host names'),
        ({"hosts": [], "current_host": "a"}, '"hosts" must be a list of host names'),
        ({"hosts": ["a", ""], "current_host": "a"}, '"hosts" must be a list of host names'),
        ({"hosts": ["a", "a"], "current_host": "a"}, "each once, found ['a', 'a']"),
        ({"hosts": ["a\nb"], "current_host": "a\nb"}, "found ['a\\nb']"),
        (
            {"hosts": ["a"], "current_host": "a", "instance_groups": [{"instance_group_name": "x", "hosts": ["b"]}]},
            "must hold each of the hosts ['a'] once at most and no other, found ['b']",
        ),
        (
            {
                "hosts": ["a"],
                "current_host": "a",
                "instance_groups": [
                    {"instance_group_name": "x", "hosts": ["a"]},
                    {"instance_group_name": "y", "hosts": ["a"]},
                ],
            },
            "once at most and no other, found ['a', 'a']",
        ),
        ({"hosts": ["a"], "current_host": "a", "current_group_name": 3}, '"current_group_name" must be text, found 3'),
        ({"hosts": ["a"], "current_host": "a", "instance_groups": [{"hosts": ["a"]}]}, "instance_group_name"),
    ],
)
def test_a_malformed_file_is_named_with_the_reason(host: Host, content: Any, reason: str) -> None:
    host.config("resourceconfig.json", content)
    with pytest.raises(ContractError) as error:
        read_resources(MlTree(host.root))
    assert str(host.root / "input/config/resourceconfig.json") in str(error.value)
    assert reason in str(error.value)


def test_what_is_no_file_or_endless_is_refused_and_not_waited_for(host: Host) -> None:
    host.job()
    path = host.root / "input/config/hyperparameters.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ContractError, match=r"hyperparameters\.json cannot be read: it is no file"):
        read_contract(MlTree(host.root))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ContractError, match="it is no file"):
        read_contract(MlTree(host.root))
    path.unlink()
    with path.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(ContractError, match="larger than 16777216 bytes"):
        read_contract(MlTree(host.root))


def test_without_resourceconfig_there_is_no_job(host: Host) -> None:
    with pytest.raises(ContractError, match=r"resourceconfig\.json is missing"):
        read_resources(MlTree(host.root))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SMDP_WORKERS_PER_HOST", "0"),
        ("SMDP_WORKERS_PER_HOST", "two"),
        ("SMDP_MASTER_PORT", "70000"),
        ("SMDP_STOP_BUDGET", "-1"),
        ("SMDP_STOP_BUDGET", "nan"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ContractError, match=name):
        Settings.from_environment({name: value})


def test_the_tree_lies_where_the_variable_says() -> None:
    assert str(MlTree.from_environment({}).code) == "/opt/ml/code"
    assert str(MlTree.from_environment({"SMDP_ML_ROOT": "/x"}).failure) == "/x/output/failure"
    assert str(MlTree.from_environment({"SMDP_ML_ROOT": "/x"}).locate("/opt/ml/code")) == "/x/code"
    assert str(MlTree.from_environment({"SMDP_ML_ROOT": "/x"}).locate("/opt/mlx/code")) == "/opt/mlx/code"
