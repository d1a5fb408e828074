"""Build the requests that serve a trained model. Pure: the same input gives the same requests.

The container definition is the one that the SageMaker SDK's `PyTorchModel.deploy` sends: the serving script is in the
model's archive, below ``code/``.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from typing import NamedTuple

from smdp_launch.catalog.hosting.images import inference_image
from smdp_launch.catalog.hosting.instances import has_other_accelerators, is_arm
from smdp_launch.jobfile.model.serve import Serve
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.build import PLAN_TAG, Request
from smdp_launch.request.names import S3Location
from smdp_launch.source.scan import SourceTree, normal_name

#: The tag with the time after which an endpoint is to be deleted.
EXPIRES_TAG = "smdp-launch:expires"
#: The tag with the random number of one deployment: two simultaneous ones of the same settings differ in it.
RUN_TAG = "smdp-launch:run"
#: The tag of an endpoint that has a schedule of EventBridge Scheduler with its name.
SCHEDULE_TAG = "smdp-launch:schedule"
#: The name that the SDK gives to the only variant of an endpoint.
VARIANT = "AllTraffic"
#: In the container, the folder of the serving script.
CODE_FOLDER = "/opt/ml/model/code"
#: The SDK's defaults of ServerlessInferenceConfig.
DEFAULT_MEMORY_MB, _DEFAULT_CONCURRENCY = 2048, 5
#: The operation of EventBridge Scheduler's universal target.
_DELETE_ENDPOINT = "aws-sdk:sagemaker:deleteEndpoint"
_ANY_NAME, _ANY_RUN = "<endpoint>", "<run>"


class Deployment(NamedTuple):
    """What a deployment sends to the service.

    Args:
        name: of the endpoint, its configuration and its model, or of the transform job and its model.
        model: as arguments of ``create_model``.
        config: of ``create_endpoint_config``; None for a batch transform.
        endpoint: of ``create_endpoint``; None for a batch transform.
        transform: of ``create_transform_job``; None for an endpoint.
        schedule: of EventBridge Scheduler's ``create_schedule``; None if nothing deletes the endpoint by itself.
        run: random; in a tag of all resources, and in the location of the packed model.
        hash: of the requests without the name, the run, the tags and the times, and of the serving script's folder.
    """

    name: str
    model: Request
    config: Request | None
    endpoint: Request | None
    transform: Request | None
    schedule: Request | None
    run: str
    hash: str

    @property
    def requests(self) -> dict[str, Request]:
        """The requests by operation, in the order in which they are sent."""
        every = {
            "CreateModel": self.model,  # first: it reserves the name against simultaneous deployments
            "CreateSchedule": self.schedule,
            "CreateEndpointConfig": self.config,
            "CreateEndpoint": self.endpoint,
            "CreateTransformJob": self.transform,
        }
        return {operation: request for operation, request in every.items() if request is not None}


def packed_model(spec: JobSpec, name: str, run: str) -> S3Location:
    """The location of the model with the serving script for the deployment ``name``: for an endpoint, beside the folder
    of the job's own results."""
    return S3Location.parse(spec.output.s3).join(name, "serve", f"model-{run}.tar.gz")


def serve_output(spec: JobSpec, name: str) -> S3Location:
    """The location of the answers of an asynchronous endpoint or a batch transform."""
    return S3Location.parse(spec.output.s3).join(name, "serve", "answers")


def serve_input(spec: JobSpec, name: str) -> S3Location:
    """The location of the requests of an asynchronous endpoint."""
    return S3Location.parse(spec.output.s3).join(name, "serve", "requests")


def transform_input(spec: JobSpec, name: str) -> S3Location:
    """The location of local data that a batch transform in the local cloud reads."""
    return S3Location.parse(spec.output.s3).join(name, "serve", "input")


def serving_image(spec: JobSpec) -> str | None:
    """The job file's serving image, or else AWS's for the framework, or else the native engine's training image, whose
    `serve` has the same contract. None if there is none for the hosts."""
    serve, framework, hosts = _serve(spec), spec.framework, _serve(spec).instance_type
    if serve.image is not None:
        return serve.image
    known = None
    if framework.transformers is None:
        known = inference_image(framework.name, framework.version, spec.region, hosts)
    is_x86 = hosts is None or not (is_arm(hosts) or has_other_accelerators(hosts))
    return spec.image if known is None and is_x86 and spec.engine == "native" else known


def deployment(spec: JobSpec, source: SourceTree, name: str, model: str, made: datetime, run: str) -> Deployment:
    """The requests for the model at ``model``, an S3 URI.

    Args:
        name: of all resources.
        made: with a time zone; the lifetime starts then.
        run: of the deployment.

    Raises:
        ValueError: there is no serving image. A rule reports that before.
    """
    serve = _serve(spec)
    expires = expiry(serve, made)
    scheduled = _schedule(serve, name, expires) if expires is not None else None
    requests = {"model": model_request(spec, name, model)}
    if serve.kind == "batch":
        requests["transform"] = _transform_request(spec, serve, name)
    else:
        requests["config"] = _config_request(spec, serve, name)
        requests["endpoint"] = {"EndpointName": name, "EndpointConfigName": name}
    digest = _hash(requests, source if serve.entry is not None else None, name, run)
    tags = [{"Key": key, "Value": value} for key, value in sorted(spec.tags.items())]
    tags += [{"Key": PLAN_TAG, "Value": digest}, {"Key": RUN_TAG, "Value": run}]
    if expires is not None:
        tags.append({"Key": EXPIRES_TAG, "Value": stamp(expires)})
    if scheduled is not None:
        tags.append({"Key": SCHEDULE_TAG, "Value": name})
    tagged = {key: request | {"Tags": tags} for key, request in requests.items()}
    return Deployment(
        name=name,
        model=tagged["model"],
        config=tagged.get("config"),
        endpoint=tagged.get("endpoint"),
        transform=tagged.get("transform"),
        schedule=scheduled,
        run=run,
        hash=digest,
    )


def expiry(serve: Serve, made: datetime) -> datetime | None:
    """When the endpoint is to be deleted; None without a lifetime, and for a batch transform, which ends by itself."""
    if serve.lifetime is None or serve.kind == "batch":
        return None
    seconds = int(made.timestamp()) + serve.lifetime
    return datetime.fromtimestamp(seconds, timezone.utc)


def stamp(moment: datetime) -> str:
    """The moment as tags and schedules have it: without a zone, in UTC."""
    return f"{moment.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%S}"


def model_request(spec: JobSpec, name: str, model: str) -> Request:
    """The arguments of ``create_model``, without tags.

    Raises:
        ValueError: there is no serving image.
    """
    image = serving_image(spec)
    if image is None:
        raise ValueError(f"no inference image of {spec.framework.name} {spec.framework.version}")
    request: Request = {
        "ModelName": name,
        "ExecutionRoleArn": spec.role,
        "PrimaryContainer": {"Image": image, "Environment": _environment(spec), "ModelDataUrl": model},
    }
    network = spec.network
    if network.subnets is not None and network.security_groups is not None:
        request["VpcConfig"] = {"Subnets": network.subnets, "SecurityGroupIds": network.security_groups}
    if network.isolated:
        request["EnableNetworkIsolation"] = True
    return request


def _serve(spec: JobSpec) -> Serve:
    if spec.serve is None:
        raise ValueError("the job file has no section serve")
    return spec.serve


def _environment(spec: JobSpec) -> dict[str, str]:
    """The container's variables. TensorFlow Serving always runs ``code/inference.py`` and reads none of these names."""
    serve = _serve(spec)
    variables = dict(serve.environment)
    if serve.entry is not None and spec.framework.name != "tensorflow":
        variables |= {
            "SAGEMAKER_PROGRAM": normal_name(serve.entry),
            "SAGEMAKER_SUBMIT_DIRECTORY": CODE_FOLDER,
            "SAGEMAKER_CONTAINER_LOG_LEVEL": "20",
            "SAGEMAKER_REGION": spec.region,
        }
    return variables


def _config_request(spec: JobSpec, serve: Serve, name: str) -> Request:
    variant: Request = {"ModelName": name, "VariantName": VARIANT, "InitialVariantWeight": 1}
    if serve.kind == "serverless":
        memory, concurrency = serve.memory_mb or DEFAULT_MEMORY_MB, serve.concurrency or _DEFAULT_CONCURRENCY
        variant["ServerlessConfig"] = {"MemorySizeInMB": memory, "MaxConcurrency": concurrency}
    else:
        variant |= {"InstanceType": serve.instance_type, "InitialInstanceCount": serve.instance_count}
    if serve.download_timeout is not None:
        variant["ModelDataDownloadTimeoutInSeconds"] = serve.download_timeout
    if serve.startup_timeout is not None:
        variant["ContainerStartupHealthCheckTimeoutInSeconds"] = serve.startup_timeout
    request: Request = {"EndpointConfigName": name, "ProductionVariants": [variant]}
    if spec.encryption.volume_key is not None and serve.kind != "serverless":
        request["KmsKeyId"] = spec.encryption.volume_key
    if serve.kind == "async":
        output: Request = {"S3OutputPath": str(serve_output(spec, name)), "S3FailurePath": f"{_failures(spec, name)}"}
        if spec.encryption.output_key is not None:
            output["KmsKeyId"] = spec.encryption.output_key
        request["AsyncInferenceConfig"] = {"OutputConfig": output}
    return request


def _failures(spec: JobSpec, name: str) -> S3Location:
    return S3Location.parse(spec.output.s3).join(name, "serve", "failures")


def _transform_request(spec: JobSpec, serve: Serve, name: str) -> Request:
    source: Request = {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": serve.input}}}
    if serve.content_type is not None:
        source["ContentType"] = serve.content_type
    if serve.split is not None:
        source["SplitType"] = serve.split
    output: Request = {"S3OutputPath": str(serve_output(spec, name))}
    if serve.assemble_with is not None:
        output["AssembleWith"] = serve.assemble_with
    resources: Request = {"InstanceType": serve.instance_type, "InstanceCount": serve.instance_count}
    if spec.encryption.output_key is not None:
        output["KmsKeyId"] = spec.encryption.output_key
    if spec.encryption.volume_key is not None:
        resources["VolumeKmsKeyId"] = spec.encryption.volume_key
    sent = {
        "BatchStrategy": serve.batch_strategy,
        "MaxConcurrentTransforms": serve.concurrency,
        "MaxPayloadInMB": serve.max_payload_mb,
    }
    return {
        "TransformJobName": name,
        "ModelName": name,
        **{field: value for field, value in sent.items() if value is not None},
        "TransformInput": source,
        "TransformOutput": output,
        "TransformResources": resources,
    }


def _schedule(serve: Serve, name: str, expires: datetime) -> Request | None:
    """The arguments of ``create_schedule``: at ``expires``, once, EventBridge Scheduler deletes the endpoint.

    None without a role that the scheduler may assume.
    """
    if serve.expiry_role is None:
        return None
    partition = serve.expiry_role.split(":")[1]
    return {
        "Name": name,
        "ScheduleExpression": f"at({stamp(expires)})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": f"arn:{partition}:scheduler:::{_DELETE_ENDPOINT}",
            "RoleArn": serve.expiry_role,
            "Input": json.dumps({"EndpointName": name}),
        },
    }


def _hash(requests: dict[str, Request], source: SourceTree | None, name: str, run: str) -> str:
    """The name contains the time of the training job. It is replaced by a constant, as in the hash of a job's plan. So
    is the run."""
    text = json.dumps([requests, source.sha256 if source is not None else None], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.replace(name, _ANY_NAME).replace(run, _ANY_RUN).encode()).hexdigest()
