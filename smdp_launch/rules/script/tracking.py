"""Trackers that cannot get the numbers of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.requirements import REQUIREMENTS_FILE

_TENSORBOARD = ("tracking", "tensorboard")
_MLFLOW = ("tracking", "mlflow")
_WANDB = ("tracking", "wandb")
_TITLES = {_TENSORBOARD: "TensorBoard", _MLFLOW: "MLflow", _WANDB: "Weights & Biases"}
#: Packages with a tracker's client, as the package index compares names; the first one is the one to install.
_CLIENTS = {
    _TENSORBOARD: ("tensorboard", "tensorboardx"),
    _MLFLOW: ("mlflow", "mlflow-skinny"),
    _WANDB: ("wandb",),
}
_SAGEMAKER_MLFLOW = "sagemaker-mlflow"
#: Folders that SageMaker fills or uploads itself. /opt/ml/output has others beside them.
_PLATFORM = ("/opt/ml/input", "/opt/ml/model", "/opt/ml/code", "/opt/ml/output/data", "/opt/ml/output/failure")
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")


def _used(facts: Facts) -> dict[tuple[str, str], object]:
    """The job's trackers that have no schema error."""
    if not facts.has("tracking"):
        return {}
    tracking = facts.spec.tracking
    every = {_TENSORBOARD: tracking.tensorboard, _MLFLOW: tracking.mlflow, _WANDB: tracking.wandb}
    return {at: one for at, one in every.items() if one is not None and facts.has(".".join(at))}


@rule("SMDP610", "tracking.tensorboard.path")
def tensorboard_folder(facts: Facts) -> Iterator[Problem]:
    board = facts.spec.tracking.tensorboard
    if board is None:
        return
    path = PurePosixPath(board.path)
    reserved = next((one for one in (*_PLATFORM, *_SYSTEM) if _overlaps(path, PurePosixPath(one))), None)
    if ".." in path.parts or reserved is not None:
        what = f"overlaps {reserved}, which {'SageMaker uses' if reserved in _PLATFORM else 'belongs to the system'}"
        message = f"the folder of the event files {path} {what if reserved else 'contains ..'}"
        help_ = "remove it to use /opt/ml/output/tensorboard"
        yield Problem((*_TENSORBOARD, "path"), message, help_, remove=True)


@rule("SMDP611", "tracking", "script.source", "engine", "framework.name", severity=Severity.WARNING)
def tracker_is_installed(facts: Facts) -> Iterator[Problem]:
    required = facts.requirements
    if facts.spec.engine != "native" or required.includes or required.problems:
        return  # SMDP612, or the file is not fully known
    for at in _used(facts):
        if at == _TENSORBOARD and facts.spec.framework.name == "tensorflow":
            continue  # TensorFlow requires it
        missing = _CLIENTS[at][0] if required.package(*_CLIENTS[at]) is None else None
        if missing is None and at == _MLFLOW and _is_in_sagemaker(facts):
            missing = _SAGEMAKER_MLFLOW if required.package(_SAGEMAKER_MLFLOW) is None else None
        if missing is not None:
            message = f"{_TITLES[at]} needs the package {missing}, which the image may not contain"
            help_ = f"add {missing} to {REQUIREMENTS_FILE} in the source folder; if the image contains it, silence this"
            yield Problem(at, message, help_, on_key=True)


def _is_in_sagemaker(facts: Facts) -> bool:
    mlflow = facts.spec.tracking.mlflow
    return mlflow is not None and facts.has("tracking.mlflow.uri") and (mlflow.uri or "").startswith("arn:")


@rule("SMDP612", "tracking", "engine", "network.isolated", "environment", severity=Severity.WARNING)
def tracker_is_used(facts: Facts) -> Iterator[Problem]:
    for at in _used(facts):
        problem = _unused(facts, at)
        if problem is not None:
            yield Problem(at, *problem, on_key=True)


def _unused(facts: Facts, at: tuple[str, str]) -> tuple[str, str] | None:
    """Why the tracker gets no numbers, and what to do; None if it does."""
    title, variables = _TITLES[at], facts.spec.environment
    if facts.spec.engine != "native":
        help_ = "report them in the script, or use `engine: native`"
        reason = "AWS's images do not contain smdp_engine"
        if facts.spec.engine != "smdistributed":
            reason = f"with engine {facts.spec.engine}, smdp_engine reports nothing"
        return f"{title} gets only what the script itself writes: {reason}", help_
    if at == _MLFLOW and _has_no_server(facts):
        message = "MLflow has no server, so its files are deleted with the host"
        return message, "add `uri`, the address of your tracking server"
    if at != _TENSORBOARD and facts.spec.network.isolated:
        if at == _WANDB and variables.get("WANDB_MODE") == "offline":
            return None
        help_ = "set WANDB_MODE to offline in `environment`" if at == _WANDB else "remove it, or `network.isolated`"
        return f"{title} is not reachable: with `network.isolated` the containers reach only each other", help_
    return None


def _has_no_server(facts: Facts) -> bool:
    mlflow = facts.spec.tracking.mlflow
    is_set = not facts.has("tracking.mlflow.uri") or (mlflow is not None and mlflow.uri is not None)
    return not is_set and "MLFLOW_TRACKING_URI" not in facts.spec.environment


def _overlaps(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
