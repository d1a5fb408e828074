"""The environment of the containers: the job file's variables, and those that the entrypoint and the engine read."""

from __future__ import annotations

from smdp_launch.jobfile.model.spec import EngineOptions, JobSpec
from smdp_launch.jobfile.model.supervision import Hang
from smdp_launch.jobfile.model.tracking import Tracking

#: The share of the known rate that each link must have: the entrypoint ends the job if one has less.
REQUIRE_VARIABLE = "SMDP_NETWORK_REQUIRE"

#: How often the launcher resumes the job, and after which failures: ``3:hang,spot``. The containers ignore it.
RETRIES_VARIABLE = "SMDP_RETRIES"

#: 1 if the request has EnableSessionTagChaining. SageMaker does not return this field, so ``resume`` reads the
#: variable. The containers ignore it.
SESSION_TAGS_VARIABLE = "SMDP_SESSION_TAGS"


def environment(spec: JobSpec) -> dict[str, str]:
    """The containers' environment: the job file's variables, and those of the engine."""
    variables = dict(spec.environment)
    if spec.engine == "native":
        # If the image contains AWS's library too, the entrypoint puts our engine's import paths first.
        variables["SMDP_ENGINE"] = "native"
        variables |= engine_variables(spec.engine_options)
        variables |= tracking_variables(spec.tracking)
        if spec.network.require is not None:
            variables[REQUIRE_VARIABLE] = spec.network.require
        variables |= hang_variables(spec)
    if spec.retries is not None:
        variables[RETRIES_VARIABLE] = f"{spec.retries.at_most}:{','.join(sorted(set(spec.retries.on)))}"
    if spec.amp is not None:
        variables["SMDP_AMP"] = spec.amp
    return variables


def hang_variables(spec: JobSpec) -> dict[str, str]:
    """What the entrypoint does about a hang, where it is not its default. A job that is resumed after a hang has to
    end first."""
    ends = spec.retries is not None and "hang" in spec.retries.on
    hang = spec.hang or Hang()
    values = {
        "SMDP_HANG": hang.action or ("end" if ends else None),
        "SMDP_HANG_AFTER_S": hang.after,
        "SMDP_HANG_FACTOR": hang.factor,
    }
    return {name: value if isinstance(value, str) else f"{value:g}" for name, value in values.items() if value}


def tracking_variables(tracking: Tracking) -> dict[str, str]:
    """The variables of the workers' tracking (smdp_engine.tracking); empty without a tracker."""
    board, mlflow, wandb = tracking.tensorboard, tracking.mlflow, tracking.wandb
    names = [name for name, one in (("tensorboard", board), ("mlflow", mlflow), ("wandb", wandb)) if one is not None]
    values = {
        "SMDP_TRACKING": ",".join(names),
        "SMDP_TRACKING_TENSORBOARD": board.path if board is not None else None,
        "SMDP_TRACKING_MLFLOW_EXPERIMENT": mlflow.experiment if mlflow is not None else None,
        "SMDP_TRACKING_MLFLOW_URI": mlflow.uri if mlflow is not None else None,
        "SMDP_TRACKING_WANDB_PROJECT": wandb.project if wandb is not None else None,
        "SMDP_TRACKING_WANDB_ENTITY": wandb.entity if wandb is not None else None,
    }
    return {name: value for name, value in values.items() if value}


def engine_variables(options: EngineOptions) -> dict[str, str]:
    values = options.model_dump(exclude_none=True, exclude={"custom_mpi_options"})
    texts = {name: f"{value:d}" if isinstance(value, bool) else str(value) for name, value in values.items()}
    return {f"SMDP_{name.upper()}": text for name, text in texts.items()}
