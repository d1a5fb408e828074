"""Hyperparameters: decoded as in the AWS toolkit, and divided into the script's and the platform's."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Mapping

from smdp_entrypoint.contract.paths import PLATFORM_ROOT

# Names that the toolkit reserves for itself, with and without the prefix; every other sagemaker_* name is a "framework
# parameter" (SM_FRAMEWORK_PARAMS).
_PREFIX = "sagemaker_"
# The platform adds it to the hyperparameters of a tuning job's trials.
_OBJECTIVE = "_tuning_objective_metric"
_OWN = frozenset(
    {
        "sagemaker_program",
        "sagemaker_submit_directory",
        "sagemaker_enable_cloudwatch_metrics",
        "sagemaker_region",
        "sagemaker_container_log_level",
        "sagemaker_job_name",
        "default_user_module_name",
        _OBJECTIVE,
        "sagemaker_s3_output",
    }
)


@dataclass(frozen=True)
class Hyperparameters:
    """`script`: passed on the script's command line; `framework`: how to launch it; `own`: for the entrypoint."""

    script: dict[str, Any]
    framework: dict[str, Any]
    own: dict[str, Any]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Hyperparameters:
        """Decode the platform's map of strings. A value that is not JSON stays text."""
        values = {name: decode_value(value) for name, value in raw.items()}
        own = {name: value for name, value in values.items() if name in _OWN}
        framework = {n: v for n, v in values.items() if n.startswith(_PREFIX) and n not in own}
        script = {n: v for n, v in values.items() if n not in own and n not in framework}
        return cls(script, framework, own)

    def with_model_dir_of_trial(self, job_name: str) -> Hyperparameters:
        """As AWS's TensorFlow toolkit does: the SDK gives all trials of a tuning job the same `model_dir` in S3, where
        they would overwrite each other's models."""
        model_dir = self.script.get("model_dir")
        if _OBJECTIVE not in self.own or not isinstance(model_dir, str) or not model_dir:
            return self
        if model_dir.startswith(PLATFORM_ROOT):
            return self
        return replace(self, script={**self.script, "model_dir": f"{model_dir}/{job_name}/model"})

    def flag(self, name: str) -> bool:
        """Whether a framework parameter is on. Text is read by its meaning: "False" is off."""
        value = self.framework.get(name, False)
        if isinstance(value, str):
            return value.strip().lower() not in ("", "0", "false", "no", "off", "none")
        return bool(value)


def decode_value(value: Any) -> Any:
    try:
        return json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return value


def to_arguments(values: Mapping[str, Any]) -> list[str]:
    """The command line of the AWS toolkit: names in order, `--name value`, `-n value` for one letter, a map as
    `k=v,k2=v2`, None as the empty text, everything else as Python's str()."""
    return [word for name in sorted(values) for word in (_option(name), _argument(values[name]))]


def _option(name: str) -> str:
    if not name:
        return ""
    return f"--{name}" if len(name) > 1 else f"-{name}"


def _argument(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={inner}" for key, inner in sorted(value.items()))
    return "" if value is None else str(value)
