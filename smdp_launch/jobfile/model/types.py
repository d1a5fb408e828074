"""Types of single values in a job file: a pattern, and a description of it for messages."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, Field, StringConstraints

#: What remains of SageMaker's 63 characters besides "-<14 digits>-<4 hex>".
MAX_NAME = 43

DAY = 86400


class Expected(NamedTuple):
    """A description of a pattern, which messages show in place of the regular expression."""

    description: str


def expected(annotation: Any) -> str | None:
    """The description of ``annotation``, which may be wrapped as in ``Annotated[...] | None``."""
    if get_origin(annotation) is dict:
        return None  # it would be the description of the keys
    metadata = getattr(annotation, "__metadata__", ())
    own = next((one.description for one in metadata if isinstance(one, Expected)), None)
    inner = (expected(one) for one in get_args(annotation) if one is not None and not isinstance(one, Expected))
    return own or next((one for one in inner if one), None)


def _not_reserved(name: str) -> str:
    if name.startswith("sagemaker_"):
        raise ValueError("names that start with sagemaker_ are reserved for the launcher")
    return name


Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Share = Annotated[
    str, StringConstraints(pattern=r"^([1-9][0-9]?|100)%$"), Expected("a share from 1% to 100%, such as 80%")
]

JobBaseName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$", max_length=MAX_NAME),
    Expected(f"letters, digits and inner hyphens, {MAX_NAME} characters at most"),
]
Version = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$"), Expected('a version such as "2.0.1"')
]
PythonVersion = Annotated[str, StringConstraints(pattern=r"^3\.[0-9]{1,2}$"), Expected('a version such as "3.10"')]
Image = Annotated[
    str,
    StringConstraints(pattern=r"^[^\s]+$", max_length=255),
    Expected("an image URI such as 123456789012.dkr.ecr.us-east-1.amazonaws.com/NAME:TAG"),
]
InstanceType = Annotated[
    str,
    StringConstraints(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9-]+$", max_length=64),
    Expected("an instance type such as ml.p4d.24xlarge"),
]
S3Uri = Annotated[
    str,
    StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\n]*)?$", max_length=1024),
    Expected("a location such as s3://bucket/prefix, the bucket in lowercase letters, digits, '.' and '-'"),
]
ContainerPath = Annotated[
    str,
    StringConstraints(pattern=r"^/[^\n]+$", max_length=4096),
    Expected("an absolute path in the container such as /opt/ml/checkpoints"),
]
FileSystemId = Annotated[
    str,
    StringConstraints(pattern=r"^fs-[0-9a-f]{8,18}$"),
    Expected("the ID of a file system such as fs-0123456789abcdef0"),
]
FileSystemPath = Annotated[
    str, StringConstraints(pattern=r"^/[^\n]*$", max_length=4096), Expected("an absolute path such as /mount/data")
]
Subnet = Annotated[
    str,
    StringConstraints(pattern=r"^subnet-([0-9a-f]{8}|[0-9a-f]{17})$"),
    Expected("the ID of a subnet such as subnet-0123456789abcdef0"),
]
SecurityGroup = Annotated[
    str,
    StringConstraints(pattern=r"^sg-([0-9a-f]{8}|[0-9a-f]{17})$"),
    Expected("the ID of a security group such as sg-0123456789abcdef0"),
]
KmsKey = Annotated[
    str,
    StringConstraints(
        pattern=r"^(arn:aws[a-z\-]*:kms:[a-z0-9-]+:[0-9]{12}:(key/[a-zA-Z0-9-]+|alias/[a-zA-Z0-9/_-]+)"
        r"|alias/[a-zA-Z0-9/_-]+|mrk-[0-9a-f]{32}"
        r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$",
        max_length=2048,
    ),
    Expected("the ID, alias or ARN of a KMS key such as alias/NAME"),
]
Role = Annotated[
    str,
    StringConstraints(pattern=r"^arn:aws[a-z\-]*:iam::[0-9]{12}:role/[a-zA-Z0-9+=,.@\-_/]+$", max_length=2048),
    Expected("the ARN of a role such as arn:aws:iam::123456789012:role/NAME"),
]
TrainingPlanArn = Annotated[
    str,
    StringConstraints(
        pattern=r"^arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]+:[0-9]{12}:training-plan/[a-zA-Z0-9-]+$", max_length=2048
    ),
    Expected("the ARN of a training plan such as arn:aws:sagemaker:us-east-1:123456789012:training-plan/NAME"),
]
SnsTopic = Annotated[
    str,
    StringConstraints(pattern=r"^arn:aws[a-z\-]*:sns:[a-z0-9\-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}$"),
    Expected("the ARN of an SNS topic such as arn:aws:sns:us-east-1:123456789012:NAME"),
]
Region = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]{2,}(-[a-z]+)+-[0-9]+$", max_length=32),
    Expected("a region such as us-east-1"),
]
ChannelName = Annotated[
    str,
    # Not only dots: the channel's name is the name of its folder in the container.
    StringConstraints(pattern=r"^[A-Za-z0-9.\-_]*[A-Za-z0-9\-_][A-Za-z0-9.\-_]*$", max_length=64),
    Expected("a channel name of letters, digits, '.', '-' and '_', not only dots"),
]
GroupName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\n]+$", max_length=64),
    Expected("the name of an instance group, one line of 1 to 64 characters"),
]
# No newline: the request's own pattern for hyperparameter names has none either.
HyperparameterName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\n]*$", min_length=1, max_length=256),
    AfterValidator(_not_reserved),
    Expected("a name of at most 256 characters that does not start with sagemaker_"),
]
WebhookVariable = Annotated[
    str,
    StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=512),
    Expected("the name of an environment variable with the URL, such as TEAM_WEBHOOK"),
]
VariableName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=512),
    Expected("a name of letters, digits and '_'"),
]
VariableValue = Annotated[str, StringConstraints(max_length=512), Expected("text of at most 512 characters")]
TagKey = Annotated[
    str,
    StringConstraints(pattern=r"^[\w .:/=+\-@]*$", min_length=1, max_length=128),
    Expected("1 to 128 letters, digits, spaces and . : / = + - @ _"),
]
TagValue = Annotated[
    str,
    StringConstraints(pattern=r"^[\w .:/=+\-@]*$", max_length=256),
    Expected("up to 256 letters, digits, spaces and . : / = + - @ _"),
]
MetricName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\n]*$", min_length=1, max_length=255),
    Expected("a name of at most 255 characters"),
]
MetricRegex = Annotated[
    str,
    StringConstraints(pattern=r"^[^\n]*$", min_length=1, max_length=500),
    Expected("a regular expression of at most 500 characters"),
]
TrackerName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\n]*$", min_length=1, max_length=128),
    Expected("a name of at most 128 characters"),
]
TrackingUri = Annotated[
    str,
    StringConstraints(pattern=r"^([a-z0-9+]+:[^\s]+|/[^\s]*|databricks)$", max_length=512),
    Expected("an address such as https://mlflow.example.com, or the ARN of a tracking server in SageMaker"),
]
ContentType = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+(; ?[^\n]+)?$", max_length=256),
    Expected("a MIME type such as application/json"),
]
Code = Annotated[str, StringConstraints(pattern=r"^SMDP[0-9]{3}$"), Expected("the code of a warning such as SMDP313")]

Seconds = Annotated[int, Field(ge=1, le=28 * DAY)]
