"""The SM_* variables, with the names and formats of the AWS toolkit 5.1.4 (its environment.py and mapping.py)."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from typing import Any, Mapping

from smdp_entrypoint.contract.devices import Devices
from smdp_entrypoint.contract.hyperparameters import to_arguments
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.platform_files import DEFAULT_INTERFACE, Contract
from smdp_entrypoint.contract.rank_layout import distribution_groups, distribution_hosts, training_hosts


@dataclass(frozen=True)
class Facts:
    """Everything the variables are computed from. `environ` is the container's own environment."""

    contract: Contract
    tree: MlTree
    devices: Devices
    environ: Mapping[str, str]

    @property
    def entry_point(self) -> str | None:
        """The program's name; a variable of the image takes precedence over the hyperparameter."""
        named = self.environ.get("SAGEMAKER_PROGRAM") or self.contract.hyperparameters.own.get("sagemaker_program")
        return None if named is None else str(named)

    @property
    def source(self) -> str:
        """Where the code comes from: an S3 address, a folder or an archive."""
        named = self.contract.hyperparameters.own.get("sagemaker_submit_directory")
        return str(named or self.environ.get("SAGEMAKER_SUBMIT_DIRECTORY") or self.tree.code)


def format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def sm_variables(facts: Facts) -> dict[str, str]:
    """All SM_* variables; they are the same for every worker of a host."""
    values = {**_exported(facts), **_per_item(facts)}
    return {f"SM_{name.upper()}": format_value(value) for name, value in values.items()}


def toolkit_variables(facts: Facts) -> dict[str, str]:
    """Variables without the SM_ prefix that the toolkit sets for scripts."""
    own = facts.contract.hyperparameters.own
    region = own.get("sagemaker_region") or facts.environ.get("AWS_REGION") or facts.environ.get("AWS_DEFAULT_REGION")
    return {
        "CURRENT_HOST": facts.contract.resources.current_host,
        "SAGEMAKER_JOB_NAME": format_value(own.get("sagemaker_job_name")),
        "SAGEMAKER_REGION": format_value(region),
    }


def _exported(facts: Facts) -> dict[str, Any]:
    properties = _properties(facts)
    renamed = {
        "hps": properties["hyperparameters"],
        "framework_params": properties["additional_framework_parameters"],
        "channels": sorted(facts.contract.channels),
        "user_args": to_arguments(properties["hyperparameters"]),
        "training_env": properties,
    }
    # What the toolkit shows in SM_TRAINING_ENV only.
    inside_only = {
        "additional_framework_parameters",
        "channel_input_dirs",
        "distribution_hosts",
        "hyperparameters",
        "is_master",
        "is_modelparallel_enabled",
        "is_smddpmprun_installed",
        "is_smddprun_installed",
        "job_name",
        "master_hostname",
    }
    if not properties["topology"]:
        inside_only.add("topology")
    return {**{name: value for name, value in properties.items() if name not in inside_only}, **renamed}


def _per_item(facts: Facts) -> dict[str, Any]:
    channels = {f"channel_{name}": str(facts.tree.data / name) for name in facts.contract.channels}
    return {**channels, **{f"hp_{name}": value for name, value in facts.contract.hyperparameters.script.items()}}


def _properties(facts: Facts) -> dict[str, Any]:
    """The public properties of the toolkit's Environment class, which SM_TRAINING_ENV shows."""
    return {**_job_properties(facts), **_host_properties(facts), **_path_properties(facts.tree)}


def _job_properties(facts: Facts) -> dict[str, Any]:
    hyperparameters, program = facts.contract.hyperparameters, facts.entry_point
    model_parallel = facts.environ.get("SM_HP_MP_PARAMETERS")
    return {
        "additional_framework_parameters": hyperparameters.framework,
        "channel_input_dirs": {name: str(facts.tree.data / name) for name in facts.contract.channels},
        "framework_module": facts.environ.get("SAGEMAKER_TRAINING_MODULE"),
        "hyperparameters": hyperparameters.script,
        "input_data_config": facts.contract.channels,
        "is_modelparallel_enabled": model_parallel and model_parallel != "{}",
        "is_smddpmprun_installed": shutil.which("smddpmprun") is not None,
        "is_smddprun_installed": shutil.which("smddprun") is not None,
        "job_name": facts.environ.get("TRAINING_JOB_NAME"),
        "log_level": hyperparameters.own.get("sagemaker_container_log_level", logging.INFO),
        "module_dir": facts.source,
        "module_name": program[: -len(".py")] if program and program.endswith(".py") else program,
        "user_entry_point": program,
    }


def _host_properties(facts: Facts) -> dict[str, Any]:
    resources, devices = facts.contract.resources, facts.devices
    master = (training_hosts(facts.contract) or resources.hosts)[0]
    names = [group["instance_group_name"] for group in resources.groups]
    return {
        "current_host": resources.current_host,
        "current_instance_group": resources.group,
        "current_instance_group_hosts": resources.group_hosts(resources.group),
        "current_instance_type": resources.instance_type,
        "distribution_hosts": distribution_hosts(facts.contract),
        "distribution_instance_groups": distribution_groups(facts.contract),
        "hosts": resources.hosts,
        "instance_groups": names,
        "instance_groups_dict": dict(zip(names, resources.groups)),
        "is_hetero": len(names) > 1,
        "is_master": resources.current_host == master,
        "master_hostname": master,
        "network_interface_name": resources.interface or DEFAULT_INTERFACE,
        "num_cpus": devices.cpus,
        "num_gpus": devices.gpus,
        "num_neurons": devices.neurons,
        "resource_config": resources.raw,
        "topology": resources.topology,
    }


def _path_properties(tree: MlTree) -> dict[str, str]:
    return {
        "input_config_dir": str(tree.config),
        "input_dir": str(tree.input),
        "model_dir": str(tree.model),
        "output_data_dir": str(tree.output_data),
        "output_dir": str(tree.output),
        "output_intermediate_dir": str(tree.intermediate),
    }
