"""A plan as a step of other systems: SageMaker Pipelines and Airflow. Each has the exact request of the plan."""

from __future__ import annotations

import copy
import re
from typing import Any, Literal

from smdp_launch.planning.plan import Plan

System = Literal["pipeline", "airflow"]
#: The version of the schema of pipeline definitions, the only one that SageMaker has.
_PIPELINE_VERSION = "2020-12-01"
#: Airflow renders the texts of a configuration as templates of Jinja.
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")


def exported(plan: Plan, system: System) -> dict[str, Any]:
    return pipeline_definition(plan) if system == "pipeline" else airflow_arguments(plan)


def pipeline_definition(plan: Plan) -> dict[str, Any]:
    """A pipeline with one step, Training or Tuning. Its arguments are the request without the names of the job, since
    each execution gets a name of its own."""
    arguments = copy.deepcopy(plan.submitted)
    if plan.tuning is not None:
        del arguments["HyperParameterTuningJobName"]
        parameters = arguments["TrainingJobDefinition"].get("StaticHyperParameters", {})
    else:
        del arguments["TrainingJobName"]
        parameters = arguments.get("HyperParameters", {})
    parameters.pop("sagemaker_job_name", None)
    step = {
        "Name": step_name(plan),
        "Type": "Tuning" if plan.tuning is not None else "Training",
        "Arguments": arguments,
    }
    return {"Version": _PIPELINE_VERSION, "Metadata": {}, "Parameters": [], "Steps": [step]}


def airflow_arguments(plan: Plan) -> dict[str, Any]:
    """Arguments of Airflow's SageMakerTrainingOperator, or of SageMakerTuningOperator for a sweep."""
    return {
        "task_id": step_name(plan),
        "config": _escaped(plan.submitted),
        "wait_for_completion": True,
        "check_interval": 60,
    }


def airflow_operator(plan: Plan) -> str:
    return "SageMakerTuningOperator" if plan.tuning is not None else "SageMakerTrainingOperator"


def step_name(plan: Plan) -> str:
    return plan.spec.name


def _escaped(value: Any) -> Any:
    """The value, with templates in its texts marked as plain text."""
    if isinstance(value, dict):
        return {key: _escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    if not isinstance(value, str) or not _TEMPLATE.search(value):
        return value
    return _TEMPLATE.sub(lambda match: "{{ '" + match[0] + "' }}", value)
