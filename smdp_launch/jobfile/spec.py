"""The job file's schema: strict models that know nothing of YAML, files or SageMaker's request.

Relations between fields are rules (smdp_launch.rules), so that one mistake never hides another.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints

SCHEMA_VERSION = 1

#: What is left of SageMaker's 63 characters beside "-<14 digits>-<4 hex>".
MAX_NAME = 43

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
S3Uri = Annotated[str, StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\n]*)?$", max_length=1024)]
ChannelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.\-_]{1,64}$")]


def _not_reserved(name: str) -> str:
    if name.startswith("sagemaker_"):
        raise ValueError("names that begin with sagemaker_ are the launcher's own")
    return name


# No newline: the request's own pattern for hyperparameter names has none either.
HyperparameterName = Annotated[str, StringConstraints(pattern=r"^[^\n]{1,256}$"), AfterValidator(_not_reserved)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Framework(Section):
    name: Literal["pytorch", "tensorflow"]
    version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+(\.\d+)?$")]
    #: Python's version as "3.10"; the image's own when absent.
    python: Annotated[str, StringConstraints(pattern=r"^3\.\d+$")] | None = None


class Script(Section):
    #: Relative to ``source``.
    entry: Text
    #: Folder that travels to every host, relative to the job file.
    source: Text
    hyperparameters: dict[HyperparameterName, JsonValue] = Field(default_factory=dict)


class Compute(Section):
    instance_type: Annotated[str, StringConstraints(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9-]+$")]
    instance_count: Annotated[int, Field(ge=1, le=1000)]
    #: GB of storage on each host; hosts with local NVMe ignore it.
    volume_gb: Annotated[int, Field(ge=1, le=16384)] = 30
    #: Seconds. SageMaker's own default is a day, its limit 28 days.
    max_run: Annotated[int, Field(ge=1, le=28 * 86400)] = 86400


class Channel(Section):
    s3: S3Uri
    mode: Literal["File", "FastFile", "Pipe"] = "File"


class Output(Section):
    s3: S3Uri


class Checkpoint(Section):
    s3: S3Uri
    path: Annotated[str, StringConstraints(pattern=r"^/[^\n]+$", max_length=4096)] = "/opt/ml/checkpoints"


class Local(Section):
    #: Channel name to a folder or file on this machine, relative to the job file.
    channels: dict[ChannelName, Text] = Field(default_factory=dict)


class JobSpec(Section):
    """One training job, as its file says it."""

    schema_version: Annotated[Literal[1], Field(alias="schema")]
    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$", max_length=MAX_NAME)]
    engine: Literal["native", "smdistributed"] = "native"
    policy: Literal["strict", "extended"] = "strict"
    framework: Framework
    image: Annotated[str, StringConstraints(pattern=r"^[^\s]+$", max_length=255)] | None = None
    script: Script
    compute: Compute
    channels: Annotated[dict[ChannelName, Channel], Field(min_length=1, max_length=20)]
    output: Output
    checkpoint: Checkpoint | None = None
    role: Annotated[
        str, StringConstraints(pattern=r"^arn:aws[a-z\-]*:iam::\d{12}:role/[a-zA-Z0-9+=,.@\-_/]+$", max_length=2048)
    ]
    region: Annotated[str, StringConstraints(pattern=r"^[a-z]{2,}(-[a-z]+)+-\d+$")]
    local: Local = Local()


#: What a pattern means, in words: shown in place of the regular expression.
EXPECTED: dict[tuple[str, ...], str] = {
    ("name",): f"letters, digits and inner hyphens, {MAX_NAME} characters at most",
    ("framework", "version"): 'a version such as "2.0.1"',
    ("framework", "python"): 'a version such as "3.10"',
    ("image",): "an image URI such as 123456789012.dkr.ecr.us-east-1.amazonaws.com/NAME:TAG",
    ("compute", "instance_type"): "an instance type such as ml.p4d.24xlarge",
    ("role",): "a role's ARN such as arn:aws:iam::123456789012:role/NAME",
    ("region",): "a region such as us-east-1",
    ("output", "s3"): "a location such as s3://BUCKET/PREFIX",
    ("checkpoint", "s3"): "a location such as s3://BUCKET/PREFIX",
    ("checkpoint", "path"): "an absolute path in the container such as /opt/ml/checkpoints",
    ("channels", "*", "s3"): "a location such as s3://BUCKET/PREFIX",
    ("channels", "*"): "a channel name of letters, digits, '.', '-' and '_'",
    ("local", "channels", "*"): "a channel name of letters, digits, '.', '-' and '_'",
    ("script", "hyperparameters", "*"): "a name of at most 256 characters that does not begin with sagemaker_",
}


def json_schema() -> dict[str, Any]:
    """The schema for editors, JSON Schema draft 2020-12."""
    return JobSpec.model_json_schema(by_alias=True)
