"""A deployment sends what the SageMaker SDK's `PyTorchModel.deploy` sends for the same model, field by field, and a
batch transform what its `Transformer` sends.

`make test-clients` makes the SDK's environment and runs this there. Nothing reaches a network: connecting is an error.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smdp_launch.catalog.hosting.images import inference_versions
from smdp_launch.checking.job import check_mapping
from smdp_launch.serving.plan import ServingPlan, serving_plan
from smdp_launch.source.packed_model import pack_model
from tests.clients.estimators import Answer, alone

__all__ = ["alone"]  # a fixture

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

NAME = "digits-20261127043000-beef"
NOW = datetime(2026, 11, 27, 5, 0, 0, tzinfo=timezone.utc)
OUTPUT = "s3://bucket/output"
MODEL = f"{OUTPUT}/{NAME}/output/model.tar.gz"
CALLS = ("CreateModel", "CreateEndpointConfig", "CreateEndpoint")
BATCH_CALLS = ("CreateModel", "CreateTransformJob")
SAVES = "import os\nopen(os.environ['SM_MODEL_DIR'] + '/model', 'w').close()\n"
BASE: dict[str, Any] = {
    "schema": 1,
    "name": "digits",
    "engine": "nccl",
    "framework": {"name": "pytorch", "version": "2.0.1"},
    "script": {"entry": "train.py", "source": "src"},
    "compute": {"instance_type": "ml.p4d.24xlarge", "instance_count": 2},
    "output": {"s3": OUTPUT},
    "role": "arn:aws:iam::123456789012:role/training",
    "region": "us-east-1",
}
_SUBNETS, _GROUPS = ["subnet-01234567", "subnet-0123456789abcdef0"], ["sg-89abcdef"]


def trained_model() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in (("model.pt", b"weights"), ("code/old.py", b"old = 1\n"), ("labels/names", b"0")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


class Service:
    """Records the SDK's requests, and answers its S3 calls with the trained model."""

    def __init__(self, session: Any) -> None:
        self.requests: dict[str, Any] = {}
        self.uploads: dict[str, bytes] = {}
        events = session.sagemaker_client.meta.events
        for call in {*CALLS, *BATCH_CALLS}:
            events.register(f"before-call.sagemaker.{call}", self._create)
        s3 = session.boto_session.events
        s3.register("before-call.s3.HeadObject", self._head)
        s3.register("before-call.s3.GetObject", self._get)
        s3.register("before-call.s3.PutObject", self._put)

    def _create(self, params: dict[str, Any], model: Any, **_: object) -> tuple[Answer, dict[str, Any]]:
        self.requests[model.name] = json.loads(params["body"])
        return Answer(), {
            "ModelArn": "arn:x",
            "EndpointConfigArn": "arn:x",
            "EndpointArn": "arn:x",
            "TransformJobArn": "arn:x",
        }

    def _head(self, **_: object) -> tuple[Answer, dict[str, Any]]:
        return Answer(), {"ContentLength": len(trained_model()), "ETag": '"e"'}

    def _get(self, **_: object) -> tuple[Answer, dict[str, Any]]:
        return Answer(), {"Body": io.BytesIO(trained_model()), "ContentLength": len(trained_model()), "ETag": '"e"'}

    def _put(self, params: dict[str, Any], **_: object) -> tuple[Answer, dict[str, Any]]:
        self.uploads[params["url_path"]] = params["body"].read()
        return Answer(), {}


@pytest.fixture(scope="module")
def session() -> Any:
    import boto3
    from sagemaker.session import Session

    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "example"}
    return Session(boto_session=boto3.Session(region_name="us-east-1", **keys), default_bucket="another-bucket")


@pytest.fixture(scope="module")
def service(session: Any) -> Service:
    return Service(session)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    (made / "src" / "lib").mkdir(parents=True)
    (made / "src" / "train.py").write_text(SAVES)
    (made / "src" / "inference.py").write_text("def model_fn(model_dir):\n    return model_dir\n")
    (made / "src" / "lib" / "net.py").write_text("SIZE = 3\n")
    return made


@st.composite
def served_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Valid jobs with a section serve, of each kind that has an endpoint."""
    kind = draw(st.sampled_from(["realtime", "serverless", "async"]))
    serve: dict[str, Any] = {"kind": kind, "entry": "inference.py"}
    names = st.from_regex(r"[A-Z][A-Z0-9_]{0,9}", fullmatch=True)
    serve["environment"] = draw(st.dictionaries(names, st.text("abc 1=,", min_size=1, max_size=9), max_size=3))
    job = BASE | {
        "framework": {"name": "pytorch", "version": draw(st.sampled_from(inference_versions("pytorch")[11:]))},
        "serve": serve,
        "tags": draw(st.dictionaries(st.sampled_from(["team", "cost center"]), st.just("vision"), max_size=2)),
    }
    if kind == "serverless":
        serve["memory_mb"] = draw(st.sampled_from([1024, 2048, 6144]))
        serve["concurrency"] = draw(st.integers(1, 200))
        return job
    serve["instance_type"] = draw(st.sampled_from(["ml.m5.large", "ml.c6i.xlarge", "ml.g5.xlarge", "ml.p3.2xlarge"]))
    serve["instance_count"] = draw(st.integers(1, 5))
    serve["lifetime"] = draw(st.integers(60, 86400))
    for key in ("startup_timeout", "download_timeout"):
        if draw(st.booleans()):
            serve[key] = draw(st.integers(60, 3600))
    if draw(st.booleans()):
        job["network"] = {"subnets": _SUBNETS, "security_groups": _GROUPS, "isolated": draw(st.booleans())}
    if draw(st.booleans()):
        serve["image"] = "123456789012.dkr.ecr.us-east-1.amazonaws.com/serves:2"
    return job


@st.composite
def transformed_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Valid jobs with a batch transform."""
    optional: dict[str, Any] = {
        "content_type": st.sampled_from(["text/csv", "application/jsonlines"]),
        "split": st.sampled_from(["None", "Line", "RecordIO", "TFRecord"]),
        "batch_strategy": st.sampled_from(["MultiRecord", "SingleRecord"]),
        "max_payload_mb": st.integers(0, 100),
        "assemble_with": st.sampled_from(["None", "Line"]),
    }
    serve: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=optional))
    serve |= {"kind": "batch", "entry": "inference.py", "input": "s3://bucket/new"}
    serve["instance_type"] = draw(st.sampled_from(["ml.m5.large", "ml.g4dn.xlarge"]))
    serve["instance_count"] = draw(st.integers(1, 5))
    if draw(st.booleans()):
        most = 100 // (serve.get("max_payload_mb", 6) or 1)
        serve["concurrency"] = draw(st.integers(1, most))
    job = BASE | {"serve": serve, "tags": draw(st.dictionaries(st.just("team"), st.just("vision"), max_size=1))}
    if draw(st.booleans()):
        key = "arn:aws:kms:us-east-1:123456789012:key/12345678-1234-1234-1234-123456789012"
        has_local_disks = serve["instance_type"] == "ml.g4dn.xlarge"  # then the service refuses a key for volumes
        job["encryption"] = {"output_key": key} | ({} if has_local_disks else {"volume_key": key})
        job["compute"] = {"instance_type": "ml.p3.16xlarge", "instance_count": 2}  # without NVMe, which takes no key
    return job


def sdk_model(plan: ServingPlan, session: Any, folder: Path) -> Any:
    """The model of the plan, as a user of the SDK writes it."""
    from sagemaker.pytorch import PyTorchModel

    spec, serve = plan.spec, plan.serve
    network = spec.network
    vpc = None
    if network.subnets is not None:
        vpc = {"Subnets": network.subnets, "SecurityGroupIds": network.security_groups}
    return PyTorchModel(
        model_data=MODEL,
        role=spec.role,
        entry_point="inference.py",
        source_dir=str(folder / "src"),
        framework_version=spec.framework.version,
        py_version=None if serve.image else _python(plan),
        image_uri=serve.image,
        env=dict(serve.environment),
        name=plan.name,
        code_location=f"{OUTPUT}/code",
        vpc_config=vpc,
        enable_network_isolation=network.isolated or None,
        sagemaker_session=session,
    )


def deployed_by_sdk(plan: ServingPlan, session: Any, folder: Path) -> None:
    """The same deployment, as a user of the SDK writes it."""
    from sagemaker.async_inference import AsyncInferenceConfig
    from sagemaker.serverless import ServerlessInferenceConfig

    serve, config = plan.serve, plan.requests["CreateEndpointConfig"]
    options: dict[str, Any] = {"endpoint_name": NAME, "tags": config["Tags"], "wait": False}
    if serve.kind == "serverless":
        options["serverless_inference_config"] = ServerlessInferenceConfig(serve.memory_mb, serve.concurrency)
    else:
        options |= {"initial_instance_count": serve.instance_count, "instance_type": serve.instance_type}
        options["model_data_download_timeout"] = serve.download_timeout
        options["container_startup_health_check_timeout"] = serve.startup_timeout
    if serve.kind == "async":
        output = config["AsyncInferenceConfig"]["OutputConfig"]
        options["async_inference_config"] = AsyncInferenceConfig(
            output_path=output["S3OutputPath"], failure_path=output["S3FailurePath"]
        )
    sdk_model(plan, session, folder).deploy(**options)


def transformed_by_sdk(plan: ServingPlan, session: Any, folder: Path) -> None:
    """The same batch transform, as a user of the SDK writes it."""
    spec, serve, sent = plan.spec, plan.serve, plan.requests["CreateTransformJob"]
    transformer = sdk_model(plan, session, folder).transformer(
        instance_count=serve.instance_count,
        instance_type=serve.instance_type,
        strategy=serve.batch_strategy,
        assemble_with=serve.assemble_with,
        output_path=sent["TransformOutput"]["S3OutputPath"],
        output_kms_key=spec.encryption.output_key,
        max_concurrent_transforms=serve.concurrency,
        max_payload=serve.max_payload_mb,
        tags=sent["Tags"],
        volume_kms_key=spec.encryption.volume_key,
    )
    transformer.transform(
        serve.input, content_type=serve.content_type, split_type=serve.split, job_name=plan.name, wait=False
    )


def _python(plan: ServingPlan) -> str:
    return str(plan.requests["CreateModel"]["PrimaryContainer"]["Image"].rpartition("-")[2])


def files_of(packed: bytes) -> dict[str, bytes]:
    def entries(tar: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
        for one in tar:
            content = tar.extractfile(one) if one.isfile() else None
            if content is not None:
                yield one.name.lstrip("/"), content.read()

    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        return dict(entries(tar))


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(job=served_jobs())
def test_sdk_sends_the_same_requests_for_generated_models(
    job: dict[str, Any], folder: Path, session: Any, service: Service
) -> None:
    os.chdir(folder)
    plan = serving_plan(check_mapping(job, folder, environ={}), NAME, "us-east-1", MODEL, lambda: NOW)
    deployed_by_sdk(plan, session, folder)
    ours = json.loads(json.dumps(dict(plan.requests)))
    theirs = {call: service.requests.pop(call) for call in CALLS}
    theirs["CreateModel"]["PrimaryContainer"]["ModelDataUrl"] = str(plan.packed)  # the SDK's own location for it
    assert theirs == ours


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(job=transformed_jobs())
def test_sdk_sends_the_same_requests_for_generated_transforms(
    job: dict[str, Any], folder: Path, session: Any, service: Service
) -> None:
    os.chdir(folder)
    plan = serving_plan(
        check_mapping(job, folder, environ={}), NAME, "us-east-1", MODEL, lambda: NOW, "cafecafecafecafe"
    )
    transformed_by_sdk(plan, session, folder)
    ours = json.loads(json.dumps(dict(plan.requests)))
    theirs = {call: service.requests.pop(call) for call in BATCH_CALLS}
    theirs["CreateModel"]["PrimaryContainer"]["ModelDataUrl"] = str(plan.packed)  # the SDK's own location for it
    assert theirs == ours


def test_sdk_packs_the_same_files(folder: Path, session: Any, service: Service) -> None:
    job = BASE | {"serve": {"entry": "inference.py", "instance_type": "ml.m5.large", "lifetime": 60}}
    os.chdir(folder)
    plan = serving_plan(check_mapping(job, folder, environ={}), NAME, "us-east-1", MODEL, lambda: NOW)
    service.uploads.clear()
    deployed_by_sdk(plan, session, folder)
    (theirs,) = service.uploads.values()
    ours = io.BytesIO()
    pack_model(io.BytesIO(trained_model()), plan.source, ours, lambda: None)
    assert files_of(ours.getvalue()) == files_of(theirs)
