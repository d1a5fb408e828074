"""The requests of a deployment, field by field, and the service's own limits for them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.serving import plan_rows
from smdp_launch.errors import Refused
from smdp_launch.planning.prepare import make_plan
from smdp_launch.planning.summary import summary
from smdp_launch.request.build import PLAN_TAG
from smdp_launch.request.limits import walk
from smdp_launch.request.serving import EXPIRES_TAG, RUN_TAG
from smdp_launch.serving.plan import ServingPlan, serving_plan
from tests.conftest import JOB, write_job
from tests.support.job_files.good_files import FILES

NOW = datetime(2026, 11, 27, 5, 0, 0, tzinfo=timezone.utc)
NAME = "small-20261127043000-beef"
RUN = "feedfacefeedface"
MODEL = f"s3://bucket/output/{NAME}/output/model.tar.gz"
SAVES = "import os\nopen(os.environ['SM_MODEL_DIR'] + '/model', 'w').close()\n"
LOADS = "def model_fn(model_dir):\n    return model_dir\n"
PRICES = "date: 2026-11-01\nsource: ours\nprices: {us-east-1: {ml.m5.large: 9}}\n"
SERVE = "serve: {entry: inference.py, instance_type: ml.m5.large, lifetime: 7200}\n"


def plan_of(folder: Path, serve: str = SERVE, job: str = JOB, where: str = "us-east-1") -> ServingPlan:
    path = write_job(folder, job + serve, SAVES)
    (folder / "src" / "inference.py").write_text(LOADS)
    return serving_plan(check_job(path, environ={}), NAME, where, MODEL, lambda: NOW, run=RUN)


def without_tags(request: Any) -> Any:
    return {key: value for key, value in request.items() if key != "Tags"}


def refused_by_service(operation: str, request: Any) -> list[str]:
    service = "scheduler" if operation == "CreateSchedule" else "sagemaker"
    shape = Session().get_service_model(service).operation_model(operation).input_shape
    errors: list[str] = ParamValidator().validate(request, shape).generate_report().splitlines()
    return errors + ([str(one) for one in walk(request, operation)] if service == "sagemaker" else [])


def test_endpoint_has_model_configuration_and_endpoint_with_the_name_of_the_job(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert {name: without_tags(one) for name, one in plan.requests.items()} == {
        "CreateModel": {
            "ModelName": NAME,
            "ExecutionRoleArn": "arn:aws:iam::123456789012:role/training",
            "PrimaryContainer": {
                "Image": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.0.1-cpu-py310",
                "Environment": {
                    "SAGEMAKER_PROGRAM": "inference.py",
                    "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
                    "SAGEMAKER_CONTAINER_LOG_LEVEL": "20",
                    "SAGEMAKER_REGION": "us-east-1",
                },
                "ModelDataUrl": f"s3://bucket/output/{NAME}/serve/model-{RUN}.tar.gz",
            },
        },
        "CreateEndpointConfig": {
            "EndpointConfigName": NAME,
            "ProductionVariants": [
                {
                    "ModelName": NAME,
                    "VariantName": "AllTraffic",
                    "InitialVariantWeight": 1,
                    "InstanceType": "ml.m5.large",
                    "InitialInstanceCount": 1,
                }
            ],
        },
        "CreateEndpoint": {"EndpointName": NAME, "EndpointConfigName": NAME},
    }


def test_every_resource_has_the_tags_of_the_job_the_hash_and_the_end_of_the_lifetime(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SERVE + "tags: {team: vision}\n")
    for request in plan.requests.values():
        assert {one["Key"]: one["Value"] for one in request["Tags"]} == {
            "team": "vision",
            PLAN_TAG: plan.deployment.hash,
            EXPIRES_TAG: "2026-11-27T07:00:00",
            RUN_TAG: RUN,
        }


def test_hash_does_not_depend_on_name_and_time_but_on_settings_and_script(tmp_path: Path) -> None:
    first = plan_of(tmp_path)
    checked = check_job(tmp_path / "job.yaml", environ={})
    other = "small-20261128043000-cafe"
    again = serving_plan(checked, other, "us-east-1", MODEL.replace(NAME, other))
    assert again.deployment.hash == first.deployment.hash
    assert plan_of(tmp_path, SERVE.replace("m5.large", "m5.xlarge")).deployment.hash != first.deployment.hash
    (tmp_path / "src" / "inference.py").write_text(LOADS + "\n")
    changed = serving_plan(check_job(tmp_path / "job.yaml", environ={}), NAME, "us-east-1", MODEL)
    assert changed.deployment.hash != first.deployment.hash


def test_schedule_deletes_the_endpoint_at_the_end_of_its_lifetime(tmp_path: Path) -> None:
    role = 'expiry_role: "arn:aws:iam::123456789012:role/expiry"'
    serve = SERVE.replace("lifetime: 7200", f"lifetime: 7200, {role}")
    plan = plan_of(tmp_path, serve)
    assert list(plan.requests)[:2] == ["CreateModel", "CreateSchedule"]
    assert plan.requests["CreateSchedule"] == {
        "Name": NAME,
        "ScheduleExpression": "at(2026-11-27T07:00:00)",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint",
            "RoleArn": "arn:aws:iam::123456789012:role/expiry",
            "Input": json.dumps({"EndpointName": NAME}),
        },
    }
    assert plan.deletes_itself
    assert not plan_of(tmp_path, serve, where="local").deletes_itself


@pytest.mark.parametrize(
    ("serve", "image"),
    [
        ("{entry: inference.py, instance_type: ml.g5.xlarge, lifetime: 60}", "pytorch-inference:2.0.1-gpu-py310"),
        ("{kind: serverless, entry: inference.py}", "pytorch-inference:2.0.1-cpu-py310"),
        ("{instance_type: ml.m5.large, image: 'mine:1', lifetime: 60}", "mine:1"),
    ],
)
def test_image_fits_the_hosts(tmp_path: Path, serve: str, image: str) -> None:
    container = plan_of(tmp_path, f"serve: {serve}\n").requests["CreateModel"]["PrimaryContainer"]
    assert container["Image"].endswith(image)


@pytest.mark.parametrize(("hosts", "fits"), [("ml.m5.large", True), ("ml.c7g.large", False)])
def test_training_image_of_the_engine_serves_where_aws_has_no_image(tmp_path: Path, hosts: str, fits: bool) -> None:
    job = JOB.replace('version: "2.0.1"', 'version: "2.13.0"').replace(":2.0.1-cu118", ":2.13.0-cu130")
    path = write_job(tmp_path, f"{job}policy: extended\n{SERVE.replace('ml.m5.large', hosts)}", SAVES)
    (tmp_path / "src" / "inference.py").write_text(LOADS)
    checked = check_job(path, environ={})
    assert ("SMDP342" in {one.code for one in checked.diagnostics}) is not fits
    if fits:
        model = serving_plan(checked, NAME, "us-east-1", MODEL).requests["CreateModel"]
        assert model["PrimaryContainer"]["Image"].endswith("/smdp-pytorch:2.13.0-cu130")


def test_own_image_serves_the_model_as_the_job_wrote_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "serve: {instance_type: ml.m5.large, image: 'mine:1', lifetime: 60}\n")
    container = plan.requests["CreateModel"]["PrimaryContainer"]
    assert container == {"Image": "mine:1", "Environment": {}, "ModelDataUrl": MODEL}
    assert plan.packed is None


def test_network_and_keys_of_the_job_apply_to_its_endpoint(tmp_path: Path) -> None:
    more = (
        "network: {subnets: [subnet-01234567], security_groups: [sg-89abcdef], isolated: true}\n"
        "encryption: {output_key: alias/results}\n"
    )
    plan = plan_of(tmp_path, SERVE + more)
    model = plan.requests["CreateModel"]
    assert model["VpcConfig"] == {"Subnets": ["subnet-01234567"], "SecurityGroupIds": ["sg-89abcdef"]}
    assert model["EnableNetworkIsolation"] is True


def test_cost_is_per_hour_and_day_and_for_the_lifetime(tmp_path: Path) -> None:
    hosting = "hosting: {us-east-1: {ml.m5.large: 0.5}}\n"
    (tmp_path / "prices.yaml").write_text(f"{PRICES}{hosting}")
    serve = SERVE.replace("ml.m5.large,", "ml.m5.large, instance_count: 2,") + "budget: {prices: prices.yaml}\n"
    plan = plan_of(tmp_path, serve)
    assert (plan.hourly_usd, plan.daily_usd, plan.most_usd) == (1.0, 24.0, 2.0)
    local = plan_of(tmp_path, serve, where="local")
    assert (local.hourly_usd, local.daily_usd, local.most_usd) == (None, None, None)


def test_plan_of_the_training_has_the_cost_of_serving(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(f"{PRICES}hosting: {{us-east-1: {{ml.m5.large: 0.5}}}}\n")
    path = write_job(tmp_path, JOB + SERVE + "budget: {prices: prices.yaml}\n", SAVES)
    (tmp_path / "src" / "inference.py").write_text(LOADS)
    wanted = "realtime, 1 x ml.m5.large: 0.50 USD an hour, 12.00 USD a day, for 2 h, after `smdp-launch deploy`"
    assert dict(summary(make_plan(check_job(path, environ={}), NOW, 0)))["serving"] == wanted


def test_training_prices_are_no_hosting_prices(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES)
    assert plan_of(tmp_path, SERVE + "budget: {prices: prices.yaml}\n").hourly_usd is None


def test_job_file_without_serve_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"serve: \{entry: inference.py, instance_type: ml.m5.large\}"):
        plan_of(tmp_path, "")


@pytest.mark.parametrize("path", [one for one in FILES if one.stem.startswith("serve-")], ids=lambda one: one.stem)
def test_service_accepts_the_requests_of_sound_files(path: Path) -> None:
    checked = check_job(path, environ={})
    name = f"{checked.require()[0].name}-20261127043000-beef"
    plan = serving_plan(checked, name, "us-east-1", f"s3://example-results/{name}/output/model.tar.gz", lambda: NOW)
    wanted = ["CreateModel", "CreateTransformJob"] if path.stem == "serve-batch" else ["CreateModel"]
    assert set(wanted) <= set(plan.requests)
    for operation, request in plan.requests.items():
        assert refused_by_service(operation, request) == []


def test_batch_transform_has_a_name_of_its_own(tmp_path: Path) -> None:
    serve = 'serve: {kind: batch, entry: inference.py, instance_type: ml.m5.large, input: "s3://bucket/new"}\n'
    path = write_job(tmp_path, JOB + serve, SAVES)
    (tmp_path / "src" / "inference.py").write_text(LOADS)
    plan = serving_plan(check_job(path, environ={}), NAME, "us-east-1", MODEL, lambda: NOW, "cafecafecafecafe")
    name = "small-20261127050000-cafe"
    assert list(plan.requests) == ["CreateModel", "CreateTransformJob"]
    assert without_tags(plan.requests["CreateTransformJob"]) == {
        "TransformJobName": name,
        "ModelName": name,
        "TransformInput": {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/new"}}},
        "TransformOutput": {"S3OutputPath": f"s3://bucket/output/{name}/serve/answers"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
    }
    container = plan.requests["CreateModel"]["PrimaryContainer"]
    assert container["ModelDataUrl"] == f"s3://bucket/output/{name}/serve/model-{plan.deployment.run}.tar.gz"


def test_batch_transform_sends_its_input_as_the_job_file_says(tmp_path: Path) -> None:
    more = "split: Line, batch_strategy: SingleRecord, max_payload_mb: 0, concurrency: 4, assemble_with: Line"
    serve = (
        f'serve: {{kind: batch, entry: inference.py, instance_type: ml.m5.large, input: "s3://bucket/new", {more}}}\n'
    )
    path = write_job(tmp_path, JOB + serve, SAVES)
    (tmp_path / "src" / "inference.py").write_text(LOADS)
    plan = serving_plan(check_job(path, environ={}), NAME, "us-east-1", MODEL, lambda: NOW, "cafecafecafecafe")
    request = plan.requests["CreateTransformJob"]
    assert {key: request[key] for key in ("BatchStrategy", "MaxConcurrentTransforms", "MaxPayloadInMB")} == {
        "BatchStrategy": "SingleRecord",
        "MaxConcurrentTransforms": 4,
        "MaxPayloadInMB": 0,
    }
    assert request["TransformInput"]["SplitType"] == request["TransformOutput"]["AssembleWith"] == "Line"
    shown = dict(plan_rows(plan))[""]
    assert shown == "one request for each record (Line), of any size, in HTTP chunks, 4 at a time on each host"


def test_longest_name_of_a_job_is_a_name_of_an_endpoint(tmp_path: Path) -> None:
    name = f"{'n' * 43}-20261127043000-beef"
    assert len(name) == 63
    path = write_job(tmp_path, JOB + SERVE, SAVES)
    (tmp_path / "src" / "inference.py").write_text(LOADS)
    plan = serving_plan(check_job(path, environ={}), name, "us-east-1", MODEL, lambda: NOW)
    assert [refused_by_service(operation, one) for operation, one in plan.requests.items()] == [[], [], []]


def test_plan_is_json(tmp_path: Path) -> None:
    made = json.loads(json.dumps(plan_of(tmp_path).to_json()))
    assert (made["endpoint"], made["kind"], made["where"]) == (NAME, "realtime", "us-east-1")
    assert list(made["requests"]) == ["CreateModel", "CreateEndpointConfig", "CreateEndpoint"]
