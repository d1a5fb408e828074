"""Check, run and launch distributed training jobs on Amazon SageMaker from one job file.

Each name is imported at its first use, so that ``import smdp_launch`` is fast.
"""

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it: `typing` takes longer than the console script needs to handle Ctrl-C
if TYPE_CHECKING:
    from smdp_launch.api import attach, deploy, launch, launch_sweep, load, plan, preflight, validate
    from smdp_launch.diagnostics import Diagnostic, Severity, Span
    from smdp_launch.errors import (
        EndpointFailed,
        EnvironmentProblem,
        ExitCode,
        JobFileRefused,
        NoResults,
        Refused,
        ServiceProblem,
        SmdpError,
        WaitTimedOut,
    )
    from smdp_launch.jobfile.model.spec import JobSpec
    from smdp_launch.jobs.checkpoints.watch import CheckpointKept, CheckpointsStalled, CheckpointsUnseen
    from smdp_launch.jobs.follow import Ended, Reached, ServiceRecovered, StatusChanged
    from smdp_launch.jobs.job import Job
    from smdp_launch.jobs.logs.messages import JobEvent, LogLine
    from smdp_launch.jobs.preflight.run import Preflight
    from smdp_launch.jobs.records.outcome import Outcome
    from smdp_launch.jobs.service.retry_policy import Waiting
    from smdp_launch.jobs.status.description import Description
    from smdp_launch.jobs.sweep import Sweep
    from smdp_launch.jobs.sweeps import SweepState, Trial
    from smdp_launch.jobs.transfer.download import Download, Downloaded
    from smdp_launch.planning.plan import Plan
    from smdp_launch.sdk.estimator import build_estimator
    from smdp_launch.sdk.inputs import build_inputs
    from smdp_launch.sdk.model_trainer import build_model_trainer
    from smdp_launch.serving.endpoint import Endpoint
    from smdp_launch.serving.undeploy import Undeployed

__version__ = "0.1.0"

_HOMES = {
    # With the views of notebooks, which these types need.
    "api": (
        "Job",
        "JobSpec",
        "Plan",
        "attach",
        "deploy",
        "launch",
        "launch_sweep",
        "load",
        "plan",
        "preflight",
        "validate",
    ),
    "diagnostics": ("Diagnostic", "Severity", "Span"),
    "errors": (
        "EndpointFailed",
        "EnvironmentProblem",
        "ExitCode",
        "JobFileRefused",
        "NoResults",
        "Refused",
        "ServiceProblem",
        "SmdpError",
        "WaitTimedOut",
    ),
    "jobs.service.retry_policy": ("Waiting",),
    "jobs.checkpoints.watch": ("CheckpointKept", "CheckpointsStalled", "CheckpointsUnseen"),
    "jobs.status.description": ("Description",),
    "jobs.sweep": ("Sweep",),
    "jobs.sweeps": ("SweepState", "Trial"),
    "jobs.transfer.download": ("Download", "Downloaded"),
    "jobs.follow": ("Ended", "Reached", "ServiceRecovered", "StatusChanged"),
    "jobs.logs.messages": ("JobEvent", "LogLine"),
    "jobs.records.outcome": ("Outcome",),
    "jobs.preflight.run": ("Preflight",),
    "sdk.estimator": ("build_estimator",),
    "sdk.inputs": ("build_inputs",),
    "sdk.model_trainer": ("build_model_trainer",),
    "serving.endpoint": ("Endpoint",),
    "serving.undeploy": ("Undeployed",),
}

__all__ = [
    "CheckpointKept",
    "CheckpointsStalled",
    "CheckpointsUnseen",
    "Description",
    "Diagnostic",
    "Download",
    "Downloaded",
    "Ended",
    "Endpoint",
    "EndpointFailed",
    "EnvironmentProblem",
    "ExitCode",
    "Job",
    "JobEvent",
    "JobFileRefused",
    "JobSpec",
    "LogLine",
    "NoResults",
    "Outcome",
    "Plan",
    "Preflight",
    "Reached",
    "Refused",
    "ServiceProblem",
    "ServiceRecovered",
    "Severity",
    "SmdpError",
    "Span",
    "StatusChanged",
    "Sweep",
    "SweepState",
    "Trial",
    "Undeployed",
    "WaitTimedOut",
    "Waiting",
    "__version__",
    "attach",
    "build_estimator",
    "build_inputs",
    "build_model_trainer",
    "deploy",
    "launch",
    "launch_sweep",
    "load",
    "plan",
    "preflight",
    "validate",
]


def __getattr__(name: str) -> object:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
