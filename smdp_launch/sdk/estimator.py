"""Makes an estimator of the SageMaker Python SDK, version 2, from a job."""

from __future__ import annotations

import os
from typing import Any

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.job_input import JobLike, plan_of
from smdp_launch.planning.plan import Plan
from smdp_launch.request.batch import on_cpus, script_hyperparameters
from smdp_launch.request.build import checkpoint_location
from smdp_launch.request.environment import environment
from smdp_launch.request.groups import groups
from smdp_launch.request.toolkit import INSTANCE_TYPE, distribution, instance_type
from smdp_launch.sdk.installed import sdk, without_notices
from smdp_launch.sdk.training import PlannedTraining

#: An instance type and a part of an image URI with which version 2 of the SDK refuses AWS's library
#: (sagemaker.estimator.Framework._distribution_configuration, 2.257).
_REFUSED_TYPE = "p5.48xlarge"
_REFUSED_IMAGE = "2.0.1-gpu-py310-cu121"

#: Disables the fields that the SDK adds by default.
_OFF = {"debugger_hook_config": False, "disable_profiler": True, "enable_sagemaker_metrics": None}


def build_estimator(job: JobLike | Plan, *, session: Any = None, quiet: bool = True) -> Any:
    """An estimator whose ``fit(build_inputs(job))`` submits the request of ``job``'s plan.

    The first ``fit`` runs under the plan's name; each later one is a new job with its own name. Changed attributes of
    the estimator are in the request.

    Args:
        job: path of a job file, mapping, JobSpec or Plan.
        session: a ``sagemaker.Session`` of the job's region; by default one with the user's own credentials.
        quiet: disable the SDK's telemetry, and suppress its notices about version 3 and about defaults.

    Returns:
        The SDK's ``HuggingFace``, ``PyTorch`` or ``TensorFlow`` with the ``distribution`` of the job's engine. If the
        SDK refuses this class, its generic ``Estimator`` with the same hyperparameters. ``estimator.plan`` is the plan.

    Raises:
        JobFileRefused: the job has errors.
        EnvironmentProblem: version 2 of the SageMaker Python SDK is not installed, or ``session`` has another region.

    ::

        estimator = build_estimator("job.yaml")
        estimator.fit(build_inputs("job.yaml"))
    """
    plan = plan_of(job)
    base = _class(plan, quiet)
    with without_notices(quiet):
        kind = type(base.__name__, (PlannedTraining, base), {"__doc__": base.__doc__})
        estimator = kind(sagemaker_session=session or _session(plan.spec, quiet), **_arguments(plan))
    if estimator.sagemaker_session.boto_region_name != plan.spec.region:
        region = estimator.sagemaker_session.boto_region_name
        raise EnvironmentProblem(
            f"the session's region is {region} and the job's is {plan.spec.region}: give a session of the job's region"
        )
    estimator.plan = plan
    estimator._quiet = quiet
    # Disables the debugger's profiler without sending a field for it.
    estimator.profiler_config = False
    return estimator


def _session(spec: JobSpec, quiet: bool) -> Any:
    boto_session = sdk("boto3", quiet).Session(region_name=spec.region)
    return sdk("sagemaker.session", quiet).Session(boto_session=boto_session)


def _class(plan: Plan, quiet: bool) -> Any:
    if _is_generic(plan):
        return sdk("sagemaker.estimator", quiet).Estimator
    if plan.spec.framework.transformers is not None:
        return sdk("sagemaker.huggingface", quiet).HuggingFace
    if plan.spec.framework.name == "tensorflow":
        return sdk("sagemaker.tensorflow", quiet).TensorFlow
    return sdk("sagemaker.pytorch", quiet).PyTorch


def _is_generic(plan: Plan) -> bool:
    spec = plan.spec
    if spec.engine in TORCH_DISTRIBUTED:
        # The SDK has torch_distributed for Python files on GPUs, and not for one group of several.
        return on_cpus(spec) or not spec.script.entry.endswith(".py") or bool(spec.compute.other_groups)
    types = [spec.compute.instance_type, *(one.instance_type for one in groups(spec))]
    return any(_REFUSED_TYPE in one for one in types) or _REFUSED_IMAGE in plan.image.uri


def _arguments(plan: Plan) -> dict[str, Any]:
    spec = plan.spec
    hyperparameters, resources = script_hyperparameters(spec), _resources(spec)
    own = {
        "entry_point": spec.script.entry,
        "source_dir": os.fspath(plan.source.folder),
        "image_uri": plan.image.uri,
        "metric_definitions": plan.request["AlgorithmSpecification"].get("MetricDefinitions"),
        "environment": environment(spec) or None,
    }
    if _is_generic(plan):
        switch = distribution(spec) | {INSTANCE_TYPE: spec.compute.instance_type} | instance_type(spec)
        own["hyperparameters"] = {**hyperparameters, **switch}
    else:
        own |= {"hyperparameters": hyperparameters} | _framework(plan)
        if spec.compute.other_groups:
            # The SDK compares the objects.
            own["distribution"]["instance_groups"] = resources["instance_groups"][:1]
    return own | resources | _places(plan) | _tensorboard(spec) | _OFF


def _switch(spec: JobSpec) -> dict[str, Any]:
    """The SDK's ``distribution``."""
    if spec.engine in TORCH_DISTRIBUTED:
        return {"torch_distributed": {"enabled": True}}
    dataparallel: dict[str, Any] = {"enabled": True}
    if spec.engine_options.custom_mpi_options is not None:
        dataparallel["custom_mpi_options"] = spec.engine_options.custom_mpi_options
    return {"smdistributed": {"dataparallel": dataparallel}}


def _framework(plan: Plan) -> dict[str, Any]:
    spec = plan.spec
    python = spec.framework.python or plan.image.python or "3"
    named: dict[str, Any] = {
        "distribution": _switch(spec),
        "py_version": f"py{python.replace('.', '')}",
    }
    if spec.framework.transformers is not None:
        versions = {"transformers_version": spec.framework.transformers}
        return named | versions | {f"{spec.framework.name}_version": spec.framework.version}
    if spec.framework.name == "tensorflow":
        named["model_dir"] = False  # no hyperparameter that the job file does not have
    return named | {"framework_version": spec.framework.version}


def _resources(spec: JobSpec) -> dict[str, Any]:
    compute = spec.compute
    hosts: dict[str, Any] = {"instance_type": compute.instance_type, "instance_count": compute.instance_count}
    if compute.other_groups:
        group = sdk("sagemaker.instance_group", quiet=True).InstanceGroup
        hosts = {"instance_groups": [group(*one) for one in groups(spec)]}
    return {
        **hosts,
        "volume_size": compute.volume_gb,
        "volume_kms_key": spec.encryption.volume_key,
        "max_run": compute.max_run,
        "max_wait": spec.spot.max_wait if spec.spot is not None else None,
        "use_spot_instances": spec.spot is not None,
        "keep_alive_period_in_seconds": compute.keep_alive,
        "max_retry_attempts": compute.retries,
        "subnets": spec.network.subnets,
        "security_group_ids": spec.network.security_groups,
        "enable_network_isolation": spec.network.isolated,
        "encrypt_inter_container_traffic": spec.network.encrypt_traffic,
    }


def _tensorboard(spec: JobSpec) -> dict[str, Any]:
    board = spec.tracking.tensorboard
    if board is None:
        return {}
    config = sdk("sagemaker.debugger", quiet=True).TensorBoardOutputConfig
    return {"tensorboard_output_config": config(s3_output_path=board.s3, container_local_output_path=board.path)}


def _places(plan: Plan) -> dict[str, Any]:
    spec = plan.spec
    places: dict[str, Any] = {
        "role": spec.role,
        "base_job_name": spec.name,
        "output_path": spec.output.s3,
        "output_kms_key": spec.encryption.output_key,
        "disable_output_compression": spec.output.compression == "none",
        "tags": [{"Key": key, "Value": value} for key, value in sorted(spec.tags.items())] or None,
    }
    if spec.checkpoint is not None:
        places["checkpoint_s3_uri"] = checkpoint_location(spec, plan.job)
        places["checkpoint_local_path"] = spec.checkpoint.path
    return places
