"""The job file's schema: strict models that do not depend on YAML, files or SageMaker's request.

Relations between fields are rules (smdp_launch.rules), so that one error never hides another.
"""

# No `from __future__ import annotations`: with it, pydantic compiles each string annotation at every start.
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, PrivateAttr

from smdp_launch.jobfile.model.channels import Channel
from smdp_launch.jobfile.model.notify import Notify
from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.serve import Serve
from smdp_launch.jobfile.model.supervision import Hang, Retries
from smdp_launch.jobfile.model.sweep import Sweep
from smdp_launch.jobfile.model.tracking import Tracking
from smdp_launch.jobfile.model.types import (
    DAY,
    ChannelName,
    Code,
    ContainerPath,
    GroupName,
    HyperparameterName,
    Image,
    InstanceType,
    JobBaseName,
    KmsKey,
    MetricName,
    MetricRegex,
    PythonVersion,
    Region,
    Role,
    S3Uri,
    Seconds,
    SecurityGroup,
    Share,
    Subnet,
    TagKey,
    TagValue,
    Text,
    TrainingPlanArn,
    VariableName,
    VariableValue,
    Version,
)
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.notebook_view import NotebookView

SCHEMA_VERSION = 1


class Framework(Section):
    name: Annotated[Literal["pytorch", "tensorflow"], Field(description="The framework that the script uses.")]
    version: Annotated[Version, Field(description='Version, such as "2.0.1"; "2.0" selects the newest 2.0.x.')]
    python: Annotated[
        PythonVersion | None, Field(description='Version, such as "3.10"; by default the version in the image.')
    ] = None
    transformers: Annotated[
        Version | None, Field(description="Version of Hugging Face transformers; selects AWS's Hugging Face image.")
    ] = None


class Script(Section):
    entry: Annotated[Text, Field(description="The script, relative to `source`.")]
    source: Annotated[Text, Field(description="Folder that is copied to every host, relative to the job file.")]
    source_limit_mb: Annotated[
        int, Field(ge=1, le=10_000, description="Largest allowed size of the source folder (MB).")
    ] = 100
    hyperparameters: Annotated[
        dict[HyperparameterName, JsonValue],
        Field(description="Values of the script's options. Each value keeps its type."),
    ] = Field(default={})


class OtherGroup(Section):
    """An instance group whose hosts do not train."""

    instance_type: Annotated[InstanceType, Field(description="Instance type of the group, such as ml.c5.18xlarge.")]
    instance_count: Annotated[int, Field(ge=1, le=1000, description="Number of hosts in the group.")]


class Compute(Section):
    """``instance_type`` and ``instance_count`` are those of the hosts that train, also if there are other groups."""

    instance_type: Annotated[InstanceType, Field(description="Instance type of the hosts, such as ml.p4d.24xlarge.")]
    instance_count: Annotated[int, Field(ge=1, le=1000, description="Number of hosts.")]
    fallback_types: Annotated[
        list[InstanceType] | None,
        Field(
            min_length=1,
            max_length=4,
            description="Types that SageMaker tries in this order if `instance_type` has no capacity.",
        ),
    ] = None
    volume_gb: Annotated[
        int, Field(ge=1, le=16384, description="GB of storage on each host; no effect on hosts with local NVMe.")
    ] = 30
    max_run: Annotated[Seconds, Field(description="Seconds after which the job is stopped; at most 28 days.")] = DAY
    max_pending: Annotated[
        int | None,
        Field(ge=1800, le=28 * DAY, description="Seconds of waiting for accelerators; then the job fails."),
    ] = None
    keep_alive: Annotated[
        int | None,
        Field(ge=1, le=21600, description="Seconds to keep the hosts for the next job, at full price."),
    ] = None
    retries: Annotated[
        int | None, Field(ge=1, le=30, description="Maximum number of restarts by SageMaker after internal errors.")
    ] = None
    training_plan: Annotated[
        TrainingPlanArn | None, Field(description="ARN of the training plan whose reserved instances the job uses.")
    ] = None
    other_groups: Annotated[
        dict[GroupName, OtherGroup] | None,
        Field(
            min_length=1,
            max_length=4,
            description="Groups of hosts that do not train, by name. Each host runs the script as one process.",
        ),
    ] = None
    group_name: Annotated[
        GroupName | None, Field(description="Name of the group that trains; only with `other_groups`.")
    ] = None
    instance_groups: Annotated[
        JsonValue, Field(description="Refused: write `other_groups` for the hosts that do not train.", deprecated=True)
    ] = None


class Spot(Section):
    max_wait: Annotated[
        Seconds | None,
        Field(description="Longest sum of waiting time and run time, in seconds; at least `compute.max_run`."),
    ] = None


class Network(Section):
    subnets: Annotated[list[Subnet] | None, Field(min_length=1, max_length=16, description="Subnets of your VPC.")] = (
        None
    )
    security_groups: Annotated[
        list[SecurityGroup] | None, Field(min_length=1, max_length=5, description="Security groups of the hosts.")
    ] = None
    isolated: Annotated[
        bool, Field(description="The containers can reach only each other, but not S3 or other services.")
    ] = False
    encrypt_traffic: Annotated[bool, Field(description="Encrypt the traffic between hosts.")] = False
    require: Annotated[
        Share | None,
        Field(
            description="End the job at its start if a link has less than this share of the host's rate, such as 80%."
        ),
    ] = None


class Encryption(Section):
    volume_key: Annotated[
        KmsKey | None, Field(description="KMS key of the hosts' volumes; not for types with local NVMe.")
    ] = None
    output_key: Annotated[KmsKey | None, Field(description="KMS key of the source archive and the results.")] = None


class Output(Section):
    s3: Annotated[
        S3Uri, Field(description="Location of the source archive and the results; the job's name is added to it.")
    ]
    compression: Annotated[
        Literal["gzip", "none"],
        Field(description="gzip packs the model as model.tar.gz; none uploads each file of the model."),
    ] = "gzip"


class Checkpoint(Section):
    s3: Annotated[S3Uri, Field(description="Location of the checkpoints; the job's name is added, unless `shared`.")]
    path: Annotated[ContainerPath, Field(description="Folder in the container that is synchronized with `s3`.")] = (
        "/opt/ml/checkpoints"
    )
    shared: Annotated[bool, Field(description="Use `s3` unchanged, and continue from what other jobs saved.")] = False


class Batch(Section):
    """``global_size`` or ``per_gpu``: the one that stays the same if the number of GPUs changes."""

    global_size: Annotated[
        int | None, Field(alias="global", ge=1, le=10**9, description="Samples of one step on all GPUs together.")
    ] = None
    per_gpu: Annotated[int | None, Field(ge=1, le=10**9, description="Samples of one step on each GPU.")] = None
    hyperparameter: Annotated[
        HyperparameterName | None, Field(description="Pass each worker's batch size to the script under this name.")
    ] = None
    reference_size: Annotated[
        int | None, Field(ge=1, le=10**9, description="Global batch for which `reference_learning_rate` was tuned.")
    ] = None
    reference_learning_rate: Annotated[
        float | None, Field(gt=0, le=1e6, description="Learning rate for `reference_size`.")
    ] = None
    learning_rate: Annotated[
        HyperparameterName | None,
        Field(description="Name of the learning rate's hyperparameter; lr and learning-rate are detected."),
    ] = None
    scaling: Annotated[
        Literal["linear", "sqrt", "none"], Field(description="How the learning rate scales with the global batch.")
    ] = "linear"
    warmup_steps: Annotated[
        int | None, Field(ge=0, le=10**9, description="Steps in which the learning rate rises to its value.")
    ] = None


class Model(Section):
    """What the training of the model keeps in the memory of a GPU, for the check against the instance type."""

    parameters: Annotated[int, Field(ge=1, le=10**14, description="Number of parameters of the whole model.")]
    trainable: Annotated[
        int | None, Field(ge=1, le=10**14, description="Number of parameters with gradients; by default all.")
    ] = None
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], Field(description="Type of the parameters and their gradients.")
    ] = "float32"
    optimizer: Annotated[
        Literal["sgd", "momentum", "adam", "adamw", "adam8bit", "adafactor"] | None,
        Field(description="Optimizer. For one with one state that has no value here, such as Lion, write `momentum`."),
    ] = None
    sharding: Annotated[
        Literal["none", "optimizer", "gradients", "parameters"],
        Field(description="Workers divide the optimizer states, also gradients (ZeRO 2), also parameters (ZeRO 3)."),
    ] = "none"


class EngineOptions(Section):
    """The engine's own options, passed as SMDP_* variables (docs/explanation/engine.md)."""

    streams: Annotated[
        int | None,
        Field(ge=1, le=16, description="Number of connections for bulk data between two ranks of different hosts."),
    ] = None
    piece_kib: Annotated[
        int | None,
        Field(ge=4, le=65536, description="Size in KiB of the pieces in which the engine sums and sends buffers."),
    ] = None
    wire_dtype: Annotated[
        Literal["bfloat16", "float16"] | None,
        Field(description="16-bit type in which hosts send rounded float32 sums, to halve the bytes."),
    ] = None
    operation_timeout_s: Annotated[
        float | None, Field(ge=0.01, le=30 * DAY, description="Seconds after which an exchange fails.")
    ] = None
    rendezvous_timeout_s: Annotated[
        float | None,
        Field(ge=0.01, le=30 * DAY, description="Seconds for which each worker waits for all workers at the start."),
    ] = None
    heartbeat_s: Annotated[
        float | None,
        Field(ge=0.1, le=3600, description="Seconds without an acknowledgement after which a host counts as lost."),
    ] = None
    verbose: Annotated[bool | None, Field(description="Also print information, not only warnings.")] = None
    custom_mpi_options: Annotated[
        str | None,
        Field(max_length=2000, pattern=r"^[^\n]*$", description="For `engine: smdistributed`: options for mpirun."),
    ] = None


class Budget(Section):
    max_usd: Annotated[
        float | None,
        Field(
            gt=0, le=1e9, description="Maximum cost of the job in USD; smdp-launch refuses a job that can cost more."
        ),
    ] = None
    max_usd_per_week: Annotated[
        float | None,
        Field(gt=0, le=1e9, description="Maximum cost in USD of your jobs and endpoints in an ISO week (UTC)."),
    ] = None
    prices: Annotated[
        Text | None,
        Field(description="Table of prices for `max_usd` (JSON or YAML), relative to the job file."),
    ] = None


class Local(Section):
    channels: Annotated[
        dict[ChannelName, Text],
        Field(description="Folders or files with the data of local runs, by channel, relative to the job file."),
    ] = Field(default={})


class JobSpec(Section, NotebookView):
    """One training job, with the values of its job file."""

    schema_version: Annotated[Literal[1], Field(alias="schema", description="Version of the job file format.")]
    name: Annotated[JobBaseName, Field(description="Base name; a launch creates the job `NAME-<UTC time>-<4 hex>`.")]
    engine: Annotated[
        Literal["native", "smdistributed", "nccl", "gloo"],
        Field(
            description=(
                "`native`: smdp-launch's engine in your image; `smdistributed`: AWS's library in AWS's images; `nccl`:"
                " torch.distributed on any GPU; `gloo`: torch.distributed on CPUs."
            )
        ),
    ] = "native"
    policy: Annotated[
        Literal["strict", "extended"],
        Field(
            description=(
                "`strict`: only instance types and versions in the documentation of AWS's library; `extended`: also"
                " later ones. No effect with `nccl` and `gloo`."
            )
        ),
    ] = "strict"
    framework: Annotated[Framework, Field(description="The framework, its version, and the version of Python.")]
    image: Annotated[Image | None, Field(description="URI of the training image; `engine: native` needs this key.")] = (
        None
    )
    script: Annotated[Script, Field(description="The training script, its folder and its hyperparameters.")]
    compute: Annotated[Compute, Field(description="The hosts, and the time limits of the job.")]
    spot: Annotated[Spot | None, Field(description="Run on spot capacity, which AWS can interrupt.")] = None
    channels: Annotated[dict[ChannelName, Channel], Field(max_length=20, description="Input data by channel name.")] = (
        Field(default={})
    )
    output: Annotated[Output, Field(description="Where the results are stored.")]
    checkpoint: Annotated[
        Checkpoint | None, Field(description="Where checkpoints are stored, so that the job can be resumed.")
    ] = None
    network: Annotated[Network, Field(description="The VPC, and the traffic between the hosts.")] = Network()
    encryption: Annotated[Encryption, Field(description="KMS keys of the data that the job writes.")] = Encryption()
    hang: Annotated[Hang | None, Field(description="When a rank counts as hanging, and whether the job then ends.")] = (
        None
    )
    retries: Annotated[Retries | None, Field(description="When to resume a failed job as a new one.")] = None
    environment: Annotated[
        dict[VariableName, VariableValue],
        Field(max_length=100, description="Environment variables of the containers. Do not put secrets here."),
    ] = Field(default={})
    tags: Annotated[dict[TagKey, TagValue], Field(max_length=49, description="Tags of the job.")] = Field(default={})
    metrics: Annotated[
        dict[MetricName, MetricRegex],
        Field(
            max_length=40,
            description="Regular expression that finds the values of the metric NAME in the log.",
        ),
    ] = Field(default={})
    tracking: Annotated[Tracking, Field(description="Where the numbers of a run are sent.")] = Tracking()
    batch: Annotated[Batch | None, Field(description="Input for the plan's batch and learning-rate advice.")] = None
    model: Annotated[Model | None, Field(description="Size of the model, for the check of the GPU's memory.")] = None
    amp: Annotated[
        Literal["fp16", "bf16"] | None,
        Field(description="Type for automatic mixed precision. The script reads this type from SMDP_AMP."),
    ] = None
    engine_options: Annotated[EngineOptions, Field(description="Options of the engine.")] = EngineOptions()
    remote_debug: Annotated[
        bool, Field(description="While the job runs, you can open a shell in its containers with AWS Systems Manager.")
    ] = False
    overlay: Annotated[
        dict[str, JsonValue],
        Field(description="Fields of the CreateTrainingJob request for which the job file has no key."),
    ] = Field(default={})
    silence: Annotated[list[Code], Field(max_length=100, description="Codes of warnings that are not shown.")] = Field(
        default=[]
    )
    budget: Annotated[Budget, Field(description="Limits of the cost.")] = Budget()
    role: Annotated[Role, Field(description="ARN of the execution role.")]
    region: Annotated[Region, Field(description="AWS region, such as us-east-1.")]
    local: Annotated[Local, Field(description="Data of local runs.")] = Local()
    serve: Annotated[Serve | None, Field(description="How `deploy` serves the trained model.")] = None
    notify: Annotated[
        Notify | None,
        Field(description="Who gets a message when the job ends or has a problem."),
    ] = None
    sweep: Annotated[Sweep | None, Field(description="Which hyperparameter values `launch` tries.")] = None
    #: The source of each value. It is not a value of the job, so it is neither compared nor serialized.
    _document: Document | None = PrivateAttr(default=None)

    @property
    def document(self) -> Document | None:
        return self._document

    def to_mapping(self) -> dict[str, Any]:
        """The mapping that gives this spec when it is loaded; every ``${`` in it is escaped."""
        data = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {key: _escaped(value) for key, value in data.items()}

    def read_from(self, document: Document) -> "JobSpec":
        """A copy of this spec that has ``document`` as the source of its values."""
        spec = self.model_copy()
        spec._document = document
        return spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobSpec) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


def _escaped(value: Any) -> Any:
    """``value`` with every ``${`` escaped: loading the job has already replaced its references."""
    if isinstance(value, dict):
        return {key: _escaped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_escaped(one) for one in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
