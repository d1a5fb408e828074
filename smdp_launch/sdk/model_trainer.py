"""Makes a model trainer of the SageMaker Python SDK, version 3, from a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.job_input import JobLike, plan_of
from smdp_launch.planning.plan import Plan
from smdp_launch.request.batch import script_hyperparameters
from smdp_launch.request.build import Request, training_request
from smdp_launch.sdk.installed import sdk, without_notices
from smdp_launch.sdk.planned_trainer import make_trainer
from smdp_launch.sdk.shapes import shape

#: The SDK asks IAM about the role when a trainer is made. `preflight` checks the account.
_VALIDATE_ROLE = "SAGEMAKER_VALIDATE_ROLE"


def build_model_trainer(job: JobLike | Plan, *, session: Any = None, quiet: bool = True) -> Any:
    """A ``ModelTrainer`` whose ``train()`` submits the request of ``job``'s plan.

    The first ``train`` runs under the plan's name; each later one is a new job with its own name. Changed attributes of
    the trainer are in the request. The container starts its own entrypoint, as on a launch: the trainer has no
    ``source_code`` and uploads the launcher's archive instead.

    Args:
        job: path of a job file, mapping, JobSpec or Plan.
        session: a ``sagemaker.core.helper.session_helper.Session`` of the job's region; by default one with the user's
            own credentials.
        quiet: disable the SDK's telemetry, and suppress its notices about defaults.

    Returns:
        The SDK's ``ModelTrainer``, with the job's channels. ``trainer.plan`` is the plan.

    Raises:
        JobFileRefused: the job has errors.
        EnvironmentProblem: version 3 of the SageMaker Python SDK is not installed, or ``session`` has another region.

    ::

        trainer = build_model_trainer("job.yaml")
        trainer.train()
    """
    plan = plan_of(job)
    sdk("sagemaker.train.model_trainer", quiet, "3")
    with without_notices(quiet), _without_role_check():
        session = session or _session(plan.spec, quiet)
        if session.boto_region_name != plan.spec.region:
            raise EnvironmentProblem(
                f"the session's region is {session.boto_region_name} and the job's is {plan.spec.region}: give a"
                " session of the job's region"
            )
        trainer = make_trainer(plan, quiet, {"sagemaker_session": session, **_arguments(plan, quiet)})
        _add_private_fields(trainer, plan, quiet)
    return trainer


def _session(spec: JobSpec, quiet: bool) -> Any:
    boto_session = sdk("boto3", quiet, "3").Session(region_name=spec.region)
    return sdk("sagemaker.core.helper.session_helper", quiet, "3").Session(boto_session=boto_session)


@contextmanager
def _without_role_check() -> Iterator[None]:
    before = os.environ.get(_VALIDATE_ROLE)
    os.environ[_VALIDATE_ROLE] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VALIDATE_ROLE]
        else:
            os.environ[_VALIDATE_ROLE] = before


def _arguments(plan: Plan, quiet: bool) -> dict[str, Any]:
    """The trainer's fields, from the plan's request without what is added when the job is submitted."""
    configs = sdk("sagemaker.core.training.configs", quiet, "3")
    spec = plan.spec
    request = training_request(_without_later_fields(spec), plan.source, plan.job)
    channels = [one for one in request.get("InputDataConfig", []) if one["ChannelName"] in spec.channels]
    optional = {
        "checkpoint_config": shape(configs.CheckpointConfig, request.get("CheckpointConfig")),
        "networking": _networking(configs.Networking, request),
        "tags": [configs.Tag(key=key, value=value) for key, value in sorted(spec.tags.items())],
        "input_data_config": [shape(configs.Channel, one) for one in channels],
    }
    spot = {"EnableManagedSpotTraining": True} if spec.spot is not None else {}
    return {
        "training_image": request["AlgorithmSpecification"]["TrainingImage"],
        "base_job_name": spec.name,
        "role": spec.role,
        "compute": shape(configs.Compute, request["ResourceConfig"] | spot),
        "stopping_condition": shape(configs.StoppingCondition, request["StoppingCondition"]),
        "output_data_config": shape(configs.OutputDataConfig, request["OutputDataConfig"]),
        "hyperparameters": script_hyperparameters(spec),
        "environment": request.get("Environment", {}),
        **{name: value for name, value in optional.items() if value},
    }


def _add_private_fields(trainer: Any, plan: Plan, quiet: bool) -> None:
    """The fields that a trainer has no arguments for."""
    configs = sdk("sagemaker.core.training.configs", quiet, "3")
    spec = plan.spec
    if spec.output.compression == "gzip":
        trainer.output_data_config.compression_type = None  # SageMaker's default, which the SDK writes out
    if spec.metrics:
        named = sorted(spec.metrics.items())
        trainer.with_metric_definitions([configs.MetricDefinition(name=name, regex=regex) for name, regex in named])
    if spec.compute.retries is not None:
        trainer.with_retry_strategy(configs.RetryStrategy(maximum_retry_attempts=spec.compute.retries))
    board = spec.tracking.tensorboard
    if board is not None:
        config = configs.TensorBoardOutputConfig(s3_output_path=board.s3, local_path=board.path)
        trainer.with_tensorboard_output_config(config)


def _without_later_fields(spec: JobSpec) -> JobSpec:
    """``spec`` without the fields that ``completed`` puts into the request: the SDK does not know all of them."""
    compute = spec.compute.model_copy(update={"fallback_types": None, "max_pending": None, "training_plan": None})
    return spec.model_copy(update={"overlay": {}, "remote_debug": False, "compute": compute})


def _networking(kind: Any, request: Request) -> Any:
    names = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption")
    given = request.get("VpcConfig", {}) | {name: request[name] for name in names if name in request}
    return shape(kind, given)
