"""Training plans, remote debugging, warm pools and the savings of spot: in the request, the checks and the status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import smdp_launch
from smdp_launch.cli.render.job.status import saving
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.status.description import description
from smdp_launch.planning.consequences import side_effects
from smdp_launch.sdk.training import completed
from tests.conftest import JOB, write_job

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
WITH_PLAN = JOB.replace("  max_run: 600\n", f"  max_run: 600\n  training_plan: {PLAN}\n")


def request_of(folder: Path, text: str) -> dict[str, Any]:
    return smdp_launch.plan(write_job(folder, text)).request


def test_training_plan_is_in_the_request(tmp_path: Path) -> None:
    resources = request_of(tmp_path, WITH_PLAN)["ResourceConfig"]
    assert resources["TrainingPlanArn"] == PLAN
    text = WITH_PLAN.replace("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge]\n")
    resources = request_of(tmp_path, text)["ResourceConfig"]
    assert "TrainingPlanArn" not in resources
    assert resources["InstancePreferences"] == [
        {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "TrainingPlanArns": [PLAN]},
        {"InstanceType": "ml.p3dn.24xlarge", "InstanceCount": 2},
    ]


def test_plan_with_fallback_types_has_its_hosts(tmp_path: Path) -> None:
    text = JOB.replace("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge]\n")
    plan = smdp_launch.plan(write_job(tmp_path, text))
    assert (plan.hosts, plan.workers_per_host) == (2, 8)


def test_changed_type_of_an_estimator_is_in_the_request_once(tmp_path: Path) -> None:
    text = JOB.replace("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge, ml.p3.16xlarge]\n")
    plan = smdp_launch.plan(write_job(tmp_path, text))
    resources = {"InstanceType": "ml.p3dn.24xlarge", "InstanceCount": 2}
    request = completed({"TrainingJobName": plan.job, "ResourceConfig": resources}, plan, None)
    preferred = request["ResourceConfig"]["InstancePreferences"]
    assert [one["InstanceType"] for one in preferred] == ["ml.p3dn.24xlarge", "ml.p3.16xlarge"]


def test_remote_debugging_is_in_the_request_and_the_plan(tmp_path: Path) -> None:
    plan = smdp_launch.plan(write_job(tmp_path, JOB + "remote_debug: true\n"))
    assert plan.request["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert any("ssm:StartSession" in one for one in side_effects(plan.spec, plan.request))
    assert "RemoteDebugConfig" not in request_of(tmp_path, JOB)


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        ("{RemoteDebugConfig: {EnableRemoteDebug: true}}", "remote_debug"),
        (f"{{ResourceConfig: {{TrainingPlanArn: '{PLAN}'}}}}", "compute.training_plan"),
    ],
)
def test_overlay_names_the_key(tmp_path: Path, overlay: str, field: str) -> None:
    (found,) = smdp_launch.validate(write_job(tmp_path, JOB + f"overlay: {overlay}\n"))
    assert (found.code, found.help) == ("SMDP603", f"replace it with the field `{field}`")
    assert found.edits


def test_overlay_with_the_selected_type_is_refused(tmp_path: Path) -> None:
    overlay = "{ResourceConfig: {SelectedInstanceType: ml.p4d.24xlarge, SelectedInstanceCount: 2}}"
    found = smdp_launch.validate(write_job(tmp_path, JOB + f"overlay: {overlay}\n"))
    assert [(one.code, one.text) for one in found] == [
        ("SMDP604", "SelectedInstanceType"),
        ("SMDP604", "SelectedInstanceCount"),
    ]


def described(**more: Any) -> dict[str, Any]:
    from datetime import datetime, timezone

    created = datetime(2026, 11, 27, tzinfo=timezone.utc)
    return {"TrainingJobName": "small", "TrainingJobStatus": "InProgress", "CreationTime": created, **more}


def test_description_has_warm_pool_selected_type_and_shell() -> None:
    from datetime import datetime, timezone

    preferred = [{"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}]
    answer = described(
        WarmPoolStatus={"Status": "Reused", "ReusedByJob": "next"},
        ResourceConfig={
            "InstancePreferences": preferred,
            "SelectedInstanceType": "ml.p3dn.24xlarge",
            "SelectedInstanceCount": 3,
        },
        RemoteDebugConfig={"EnableRemoteDebug": True},
    )
    shown = description(answer, datetime.now(timezone.utc))
    assert (shown.warm_pool, shown.remote_debug) == ("Reused by next", True)
    assert (shown.instance_type, shown.hosts) == ("ml.p3dn.24xlarge", 3)
    plain = description(described(ResourceConfig={"InstancePreferences": preferred}), datetime.now(timezone.utc))
    assert (plain.warm_pool, plain.remote_debug, plain.instance_type, plain.hosts) == (None, False, None, 2)


def test_saving_of_spot_is_that_of_the_billed_time() -> None:
    ended = Outcome("Completed", ExitCode.OK, "completed", training_seconds=1000, billable_seconds=300)
    assert saving(ended) == "70% saved: 5 min billed of 16 min 40 s"
    assert saving(Outcome("Completed", ExitCode.OK, "completed", training_seconds=10, billable_seconds=10)) is None
    assert saving(Outcome("Failed", ExitCode.JOB_FAILED, "failed")) is None
