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
    from entrypoint_support.host import Host


def test_defaults_replace_fields_that_older_platforms_omit(host: Host) -> None:
    host.config("resourceconfig.json", {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"]})
    contract = read_contract(MlTree(host.root))
    assert contract.resources.instance_type == "local"
    assert contract.resources.group == "homogeneousCluster"
    assert contract.resources.interface is None
    assert contract.channels == {}
    assert contract.hyperparameters.script == {}
    assert contract.checkpoints == host.root / "checkpoints"


def test_checkpoint_folder_below_opt_ml_is_relative_to_the_tree(host: Host) -> None:
    host.job()
    host.config("checkpointconfig.json", {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/kept/here"})
    assert read_contract(MlTree(host.root)).checkpoints == host.root / "kept/here"
    host.config("checkpointconfig.json", {"S3Uri": "s3://b/c", "LocalPath": "/scratch"})
    assert read_contract(MlTree(host.root)).checkpoints == Path("/scratch")


def test_checkpoint_folder_that_cannot_be_created_ends_only_a_job_with_checkpoints(host: Host) -> None:
    host.job("print('trained')")
    (host.root / "checkpoints").touch()
    assert host.run() == 0
    assert "checkpoints cannot be created: File exists." in host.text
    host.config("checkpointconfig.json", {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/checkpoints"})
    assert host.run() == 1
    assert host.failure.startswith(f"The folder {host.root}/checkpoints cannot be created: File exists.")
    host.config("checkpointconfig.json", {"S3Uri": "s3://b/c", "LocalPath": "/opt/ml/checkpoints/here"})
    assert host.run() == 1
    assert f"The folder {host.root}/checkpoints/here cannot be created: Not a directory." in host.failure


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "must hold a JSON object, found list"),
        ({"hosts": ["a"], "current_host": "b"}, "\"current_host\" is 'b', which is not one of the hosts"),
        ({"hosts": "a", "current_host": "a"}, '"hosts" must be a list of different host names'),
        ({"hosts": [], "current_host": "a"}, '"hosts" must be a list of different host names'),
        ({"hosts": ["a", ""], "current_host": "a"}, '"hosts" must be a list of different host names'),
        ({"hosts": ["a", "a"], "current_host": "a"}, "different host names, found ['a', 'a']"),
        ({"hosts": ["a\nb"], "current_host": "a\nb"}, "found ['a\\nb']"),
        (
            {"hosts": ["a"], "current_host": "a", "instance_groups": [{"instance_group_name": "x", "hosts": ["b"]}]},
            "must list each of the hosts ['a'] at most once and no other host, found ['b']",
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
            "at most once and no other host, found ['a', 'a']",
        ),
        ({"hosts": ["a"], "current_host": "a", "current_group_name": 3}, '"current_group_name" must be text, found 3'),
        ({"hosts": ["a"], "current_host": "a", "instance_groups": [{"hosts": ["a"]}]}, "instance_group_name"),
    ],
)
def test_malformed_file_error_names_file_and_reason(host: Host, content: Any, reason: str) -> None:
    host.config("resourceconfig.json", content)
    with pytest.raises(ContractError) as error:
        read_resources(MlTree(host.root))
    assert str(host.root / "input/config/resourceconfig.json") in str(error.value)
    assert reason in str(error.value)


def test_pipe_device_or_huge_file_is_refused_at_once(host: Host) -> None:
    host.job()
    path = host.root / "input/config/hyperparameters.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ContractError, match=r"hyperparameters\.json cannot be read: it is not a regular file"):
        read_contract(MlTree(host.root))
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(ContractError, match="it is not a regular file"):
        read_contract(MlTree(host.root))
    path.unlink()
    with path.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(ContractError, match="larger than 16777216 bytes"):
        read_contract(MlTree(host.root))


def test_missing_resourceconfig_is_refused(host: Host) -> None:
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
def test_setting_out_of_range_error_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(ContractError, match=name):
        Settings.from_environment({name: value})


def test_variable_moves_the_tree() -> None:
    assert str(MlTree.from_environment({}).code) == "/opt/ml/code"
    assert str(MlTree.from_environment({"SMDP_ML_ROOT": "/x"}).failure) == "/x/output/failure"
    assert str(MlTree.from_environment({"SMDP_ML_ROOT": "/x"}).locate("/opt/ml/code")) == "/x/code"
    assert str(MlTree.from_environment({"SMDP_ML_ROOT": "/x"}).locate("/opt/mlx/code")) == "/opt/mlx/code"
