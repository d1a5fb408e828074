from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from smdp_entrypoint.contract.devices import Devices
from smdp_entrypoint.contract.environment import Facts, sm_variables, toolkit_variables
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.platform_files import read_contract
from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.worker_variables import (
    _WORKER_SITE,
    Master,
    default_variables,
    host_variables,
    valid_variables,
    with_code_on_path,
    worker_variables,
)

pytestmark = pytest.mark.conformance

if TYPE_CHECKING:
    from pathlib import Path

    from entrypoint_support.host import Host

HYPERPARAMETERS = {
    "sagemaker_program": '"train.py"',
    "sagemaker_submit_directory": '"s3://bucket/job/source/sourcedir.tar.gz"',
    "sagemaker_container_log_level": "20",
    "sagemaker_job_name": '"mnist-1"',
    "sagemaker_region": '"us-west-2"',
    "sagemaker_distributed_dataparallel_enabled": "true",
    "sagemaker_instance_type": '"ml.p4d.24xlarge"',
    "batch-size": "64",
    "lr": "0.1",
    "name": '"caf\\u00e9"',
    "plain": "not json",
    "sizes": "[1, 2]",
    "nothing": "null",
    "n": "true",
}
GROUP = {"instance_group_name": "g", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-1", "algo-2"]}
RESOURCES = {
    "current_host": "algo-2",
    "hosts": ["algo-1", "algo-2"],
    "current_instance_type": "ml.p4d.24xlarge",
    "current_group_name": "g",
    "instance_groups": [GROUP],
    "network_interface_name": "lo",
}
CHANNELS = {"train": {"TrainingInputMode": "File"}, "my-val": {"TrainingInputMode": "File"}}

GROUP_JSON = '{"hosts":["algo-1","algo-2"],"instance_group_name":"g","instance_type":"ml.p4d.24xlarge"}'
CHANNELS_JSON = '{"my-val":{"TrainingInputMode":"File"},"train":{"TrainingInputMode":"File"}}'
HPS_JSON = '{"batch-size":64,"lr":0.1,"n":true,"name":"caf\\u00e9","nothing":null,"plain":"not json","sizes":[1,2]}'
FRAMEWORK_JSON = '{"sagemaker_distributed_dataparallel_enabled":true,"sagemaker_instance_type":"ml.p4d.24xlarge"}'
RESOURCES_JSON = (
    '{"current_group_name":"g","current_host":"algo-2","current_instance_type":"ml.p4d.24xlarge",'
    '"hosts":["algo-1","algo-2"],"instance_groups":[' + GROUP_JSON + '],"network_interface_name":"lo"}'
)
EXPECTED = {
    "SM_HOSTS": '["algo-1","algo-2"]',
    "SM_CURRENT_HOST": "algo-2",
    "SM_CURRENT_INSTANCE_TYPE": "ml.p4d.24xlarge",
    "SM_CURRENT_INSTANCE_GROUP": "g",
    "SM_CURRENT_INSTANCE_GROUP_HOSTS": '["algo-1","algo-2"]',
    "SM_INSTANCE_GROUPS": '["g"]',
    "SM_INSTANCE_GROUPS_DICT": '{"g":' + GROUP_JSON + "}",
    "SM_DISTRIBUTION_INSTANCE_GROUPS": '["g"]',
    "SM_IS_HETERO": "false",
    "SM_NETWORK_INTERFACE_NAME": "lo",
    "SM_HPS": HPS_JSON,
    "SM_HP_BATCH-SIZE": "64",
    "SM_HP_LR": "0.1",
    "SM_HP_NAME": "café",
    "SM_HP_PLAIN": "not json",
    "SM_HP_SIZES": "[1,2]",
    "SM_HP_NOTHING": "",
    "SM_HP_N": "true",
    "SM_USER_ENTRY_POINT": "train.py",
    "SM_USER_ARGS": '["--batch-size","64","--lr","0.1","-n","True","--name","caf\\u00e9","--nothing","",'
    '"--plain","not json","--sizes","[1, 2]"]',
    "SM_FRAMEWORK_PARAMS": FRAMEWORK_JSON,
    "SM_FRAMEWORK_MODULE": "",
    "SM_MODULE_NAME": "train",
    "SM_MODULE_DIR": "s3://bucket/job/source/sourcedir.tar.gz",
    "SM_RESOURCE_CONFIG": RESOURCES_JSON,
    "SM_INPUT_DATA_CONFIG": CHANNELS_JSON,
    "SM_CHANNELS": '["my-val","train"]',
    "SM_CHANNEL_TRAIN": "ROOT/input/data/train",
    "SM_CHANNEL_MY-VAL": "ROOT/input/data/my-val",
    "SM_INPUT_DIR": "ROOT/input",
    "SM_INPUT_CONFIG_DIR": "ROOT/input/config",
    "SM_OUTPUT_DIR": "ROOT/output",
    "SM_OUTPUT_DATA_DIR": "ROOT/output/data",
    "SM_OUTPUT_INTERMEDIATE_DIR": "ROOT/output/intermediate",
    "SM_MODEL_DIR": "ROOT/model",
    "SM_NUM_CPUS": "96",
    "SM_NUM_GPUS": "8",
    "SM_NUM_NEURONS": "0",
    "SM_LOG_LEVEL": "20",
    "SM_TRAINING_ENV": '{"additional_framework_parameters":'
    + FRAMEWORK_JSON
    + ',"channel_input_dirs":{"my-val":"ROOT/input/data/my-val","train":"ROOT/input/data/train"}'
    + ',"current_host":"algo-2","current_instance_group":"g"'
    + ',"current_instance_group_hosts":["algo-1","algo-2"],"current_instance_type":"ml.p4d.24xlarge"'
    + ',"distribution_hosts":["algo-1","algo-2"],"distribution_instance_groups":["g"],"framework_module":null'
    + ',"hosts":["algo-1","algo-2"],"hyperparameters":'
    + HPS_JSON
    + ',"input_config_dir":"ROOT/input/config","input_data_config":'
    + CHANNELS_JSON
    + ',"input_dir":"ROOT/input","instance_groups":["g"],"instance_groups_dict":{"g":'
    + GROUP_JSON
    + '},"is_hetero":false,"is_master":false,"is_modelparallel_enabled":null,"is_smddpmprun_installed":false'
    + ',"is_smddprun_installed":false,"job_name":"mnist-1","log_level":20,"master_hostname":"algo-1"'
    + ',"model_dir":"ROOT/model","module_dir":"s3://bucket/job/source/sourcedir.tar.gz","module_name":"train"'
    + ',"network_interface_name":"lo","num_cpus":96,"num_gpus":8,"num_neurons":0'
    + ',"output_data_dir":"ROOT/output/data","output_dir":"ROOT/output"'
    + ',"output_intermediate_dir":"ROOT/output/intermediate","resource_config":'
    + RESOURCES_JSON
    + ',"topology":[],"user_entry_point":"train.py"}',
}


@pytest.fixture
def facts(host: Host) -> Facts:
    host.config("hyperparameters.json", HYPERPARAMETERS)
    host.config("resourceconfig.json", RESOURCES)
    host.config("inputdataconfig.json", CHANNELS)
    tree = MlTree(host.root)
    return Facts(read_contract(tree), tree, Devices(cpus=96, gpus=8, neurons=0), {"TRAINING_JOB_NAME": "mnist-1"})


def test_every_sm_variable_has_the_toolkits_name_and_form(facts: Facts, host: Host) -> None:
    variables = {name: value.replace(str(host.root), "ROOT") for name, value in sm_variables(facts).items()}
    assert variables == EXPECTED


def test_topology_is_exported_only_if_the_platform_provides_it(facts: Facts, host: Host) -> None:
    host.config("resourceconfig.json", {**RESOURCES, "topology": [{"hostName": "algo-1"}]})
    with_topology = Facts(read_contract(facts.tree), facts.tree, facts.devices, {})
    assert sm_variables(with_topology)["SM_TOPOLOGY"] == '[{"hostName":"algo-1"}]'


def test_toolkit_variables_without_prefix(facts: Facts) -> None:
    assert toolkit_variables(facts) == {
        "CURRENT_HOST": "algo-2",
        "SAGEMAKER_JOB_NAME": "mnist-1",
        "SAGEMAKER_REGION": "us-west-2",
    }


def test_image_variable_overrides_the_program_hyperparameter(facts: Facts) -> None:
    own = Facts(facts.contract, facts.tree, facts.devices, {"SAGEMAKER_PROGRAM": "other.py"})
    assert sm_variables(own)["SM_USER_ENTRY_POINT"] == "other.py"


@pytest.mark.parametrize(
    ("of_the_host", "requested", "expected"),
    [
        ("ml.p3dn.24xlarge", "ml.p4d.24xlarge", "ml.p3dn.24xlarge"),
        ("ml.p3dn.24xlarge", None, "ml.p3dn.24xlarge"),
        (None, "ml.p4d.24xlarge", "ml.p4d.24xlarge"),
        (None, None, "local"),
    ],
)
def test_instance_type_is_the_hosts_not_the_requested_one(
    facts: Facts, host: Host, of_the_host: str | None, requested: str | None, expected: str
) -> None:
    host.config("resourceconfig.json", {**RESOURCES, "current_instance_type": of_the_host})
    host.config("hyperparameters.json", {"sagemaker_instance_type": f'"{requested}"'} if requested else {})
    layout = Layout(("algo-1", "algo-2"), "algo-2", 8)
    variables = host_variables(read_contract(facts.tree), layout, Master("algo-1", "10.0.0.5", 7777))
    assert variables["SAGEMAKER_INSTANCE_TYPE"] == expected


@pytest.mark.parametrize(
    ("hyperparameters", "expected"),
    [({"sagemaker_torch_distributed_enabled": "true"}, "none"), ({"sagemaker_mpi_enabled": "true"}, None), ({}, None)],
)
def test_jobs_of_torch_distributed_have_the_run_id_of_torchrun(
    facts: Facts, host: Host, hyperparameters: dict[str, str], expected: str | None
) -> None:
    host.config("hyperparameters.json", hyperparameters)
    variables = host_variables(read_contract(facts.tree), Layout(("algo-1",), "algo-1", 2), Master("algo-1", "::1", 1))
    assert variables.get("TORCHELASTIC_RUN_ID") == expected


def test_the_ranks_of_the_second_of_two_hosts(facts: Facts) -> None:
    layout = Layout(("algo-1", "algo-2"), "algo-2", 8)
    assert host_variables(facts.contract, layout, Master("algo-1", "10.0.0.5", 7777)) == {
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.5",
        "MASTER_PORT": "7777",
        "SMDP_HOST_ID": "algo-2",
        "SMDP_CHECKPOINT_DIR": str(facts.tree.root / "checkpoints"),
        "SAGEMAKER_INSTANCE_TYPE": "ml.p4d.24xlarge",
        "SMDATAPARALLEL_USE_HOMOGENEOUS": "1",
        "SMDATAPARALLEL_SERVER_ADDR": "algo-1",
        "SMDATAPARALLEL_SERVER_PORT": "7592",
    }
    assert worker_variables(facts.contract, layout, 3) == {
        "RANK": "11",
        "LOCAL_RANK": "3",
        "SMDATAPARALLEL_LOCAL_RANK": "3",
        "OMPI_COMM_WORLD_RANK": "11",
        "OMPI_COMM_WORLD_SIZE": "16",
        "OMPI_COMM_WORLD_LOCAL_RANK": "3",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
    }


MIRRORED = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}


def test_mirrored_strategy_gets_tf_config(facts: Facts, host: Host) -> None:
    host.config("hyperparameters.json", MIRRORED)
    hosts = tuple(RESOURCES["hosts"])
    variables = host_variables(read_contract(facts.tree), Layout(hosts, "algo-2", 1), Master("algo-1", "10.0.0.5", 1))
    assert json.loads(variables["TF_CONFIG"]) == {
        "cluster": {"worker": [f"{name}:8890" for name in hosts]},
        "environment": "cloud",
        "task": {"index": hosts.index("algo-2"), "type": "worker"},
    }


def test_a_host_outside_the_distribution_has_no_cluster(facts: Facts, host: Host) -> None:
    host.config("hyperparameters.json", MIRRORED)
    layout = Layout(("algo-2",), "algo-2", 1)
    assert "TF_CONFIG" not in host_variables(read_contract(facts.tree), layout, Master("algo-2", "10.0.0.5", 1))


def test_one_host_is_a_single_node_for_the_library(facts: Facts) -> None:
    variables = host_variables(facts.contract, Layout(("algo-2",), "algo-2", 8), Master("algo-2", "127.0.0.1", 1))
    assert variables["SMDATAPARALLEL_USE_SINGLENODE"] == "1"
    assert "SMDATAPARALLEL_SERVER_ADDR" not in variables


def test_threads_are_divided_and_an_existing_interface_is_set(facts: Facts, messages: list[str]) -> None:
    many = default_variables(facts.contract, Layout(("algo-2",), "algo-2", 10_000), facts.devices, {}, messages.append)
    assert many == {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "NCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    assert "OMP_NUM_THREADS" not in default_variables(
        facts.contract, Layout(("algo-2",), "algo-2", 1), facts.devices, {}, messages.append
    )
    assert messages == []


def test_missing_interface_is_logged_and_not_set(facts: Facts, host: Host, messages: list[str]) -> None:
    host.config("resourceconfig.json", {**RESOURCES, "network_interface_name": "eth77"})
    contract = read_contract(facts.tree)
    assert default_variables(contract, Layout(("algo-2",), "algo-2", 1), facts.devices, {}, messages.append) == {
        "PYTHONUNBUFFERED": "1"
    }
    assert "eth77" in messages[0]


@pytest.mark.parametrize(
    ("name", "value"), [("SM_HP_A=B", "1"), ("SM_HP_A", "\0"), ("SM_HP_A", "\ud800"), ("SM_HP_A", "x" * 200_000)]
)
def test_invalid_variable_is_omitted_and_logged(messages: list[str], name: str, value: Any) -> None:
    assert valid_variables({name: value, "B": "2"}, messages.append) == {"B": "2"}
    assert name in messages[0]


def test_workers_get_arguments_environment_and_folders(host: Host) -> None:
    host.job(
        """
        import json, os, sys
        path = os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], os.environ["RANK"] + ".json")
        json.dump({"env": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd()}, open(path, "w"))
        """,
        epochs=3,
        text="a 'b' \"c\" $HOME; ls",
    )
    assert host.run(SMDP_WORKERS_PER_HOST="2", SMDP_MASTER_PORT="4711", MINE="kept", OMP_NUM_THREADS="7") == 0
    worker = host.saved("1.json")
    assert worker["argv"] == ["train.py", "--epochs", "3", "--text", "a 'b' \"c\" $HOME; ls"]
    assert os.path.realpath(worker["cwd"]) == os.path.realpath(host.root / "code")
    expected = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4711",
        "SMDP_HOST_ID": "algo-1",
        "SMDP_CHECKPOINT_DIR": str(host.root / "checkpoints"),
        "SMDP_TRACE_DIR": str(host.root / "output/data/flight"),
        "SMDATAPARALLEL_USE_SINGLENODE": "1",
        "SAGEMAKER_INSTANCE_TYPE": "local",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "7",
        "MINE": "kept",
        "SM_MODEL_DIR": str(host.root / "model"),
        "SM_HPS": json.dumps({"epochs": 3, "text": "a 'b' \"c\" $HOME; ls"}, separators=(",", ":")),
    }
    assert {name: worker["env"].get(name) for name in expected} == expected
    for folder in ("model", "output/data", "checkpoints"):
        assert (host.root / folder).is_dir()


@pytest.mark.parametrize("engine", ["native", "smdistributed", None])
def test_native_job_finds_this_projects_engine_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str | None
) -> None:
    package = tmp_path / "site" / "smdp_engine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "smdp_engine", raising=False)
    environ = {"PYTHONPATH": "/aws", **({"SMDP_ENGINE": engine} if engine else {})}
    path = with_code_on_path(environ, "/opt/ml/code")["PYTHONPATH"].split(":")
    ours = [_WORKER_SITE, str(package / "dropin")] if engine == "native" else []
    assert path == ["/opt/ml/code", *ours, "/aws"]
