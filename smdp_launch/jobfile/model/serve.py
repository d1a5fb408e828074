"""The section ``serve`` of the job file: how the trained model answers requests."""

# No `from __future__ import annotations`: with it, pydantic compiles each string annotation at every start.
from typing import Annotated, Literal

from pydantic import Field

from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.types import (
    DAY,
    ContentType,
    Image,
    InstanceType,
    Role,
    S3Uri,
    Text,
    VariableName,
    VariableValue,
)

#: Limits of SageMaker for an endpoint (CreateEndpointConfig, ProductionVariant), in seconds.
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 60, 3600
_Timeout = Annotated[int, Field(ge=SHORTEST_TIMEOUT, le=LONGEST_TIMEOUT)]

Kind = Literal["realtime", "serverless", "async", "batch"]


class Serve(Section):
    """How `deploy` serves the model that the job trains."""

    kind: Annotated[
        Kind,
        Field(
            description=(
                "`realtime`: hosts that answer at once; `serverless`: no hosts to choose; `async`: answers in S3;"
                " `batch`: a transform job over `input`."
            )
        ),
    ] = "realtime"
    entry: Annotated[
        Text | None,
        Field(description="Script with `model_fn`, at the top of `script.source`; it is packed with the model."),
    ] = None
    image: Annotated[
        Image | None, Field(description="URI of the serving image; by default AWS's image of the framework.")
    ] = None
    instance_type: Annotated[
        InstanceType | None,
        Field(description="Instance type, such as ml.m5.large; required, except for `serverless`."),
    ] = None
    instance_count: Annotated[int, Field(ge=1, le=1000, description="Number of hosts.")] = 1
    memory_mb: Annotated[
        Literal[1024, 2048, 3072, 4096, 5120, 6144] | None, Field(description="Memory of a `serverless` endpoint (MB).")
    ] = None
    concurrency: Annotated[
        int | None,
        Field(
            ge=1,
            le=200,
            description=(
                "Number of requests that a `serverless` endpoint answers at the same time, or that a `batch` transform"
                " sends to each host at the same time."
            ),
        ),
    ] = None
    environment: Annotated[
        dict[VariableName, VariableValue],
        Field(max_length=96, description="Environment variables of the serving containers. Do not put secrets here."),
    ] = Field(default={})
    startup_timeout: Annotated[
        _Timeout | None, Field(description="Seconds within which a container must answer its health check, 60 to 3600.")
    ] = None
    download_timeout: Annotated[
        _Timeout | None, Field(description="Seconds within which the model must be on the host, 60 to 3600.")
    ] = None
    lifetime: Annotated[
        int | None,
        Field(
            ge=60,
            le=365 * DAY,
            description="Seconds after which the endpoint should be deleted. With `expiry_role`, AWS deletes it.",
        ),
    ] = None
    expiry_role: Annotated[
        Role | None,
        Field(description="Role that EventBridge Scheduler uses to delete the endpoint at the end of `lifetime`."),
    ] = None
    max_usd: Annotated[
        float | None,
        Field(gt=0, le=1e9, description="Maximum cost of the endpoint during `lifetime`, in USD."),
    ] = None
    input: Annotated[S3Uri | None, Field(description="Location of the objects that a `batch` transform reads.")] = None
    split: Annotated[
        Literal["None", "Line", "RecordIO", "TFRecord"] | None,
        Field(
            description="Format of the records of a `batch` transform; by default (`None`), an object is one record."
        ),
    ] = None
    batch_strategy: Annotated[
        Literal["MultiRecord", "SingleRecord"] | None,
        Field(
            description=(
                "For a `batch` transform with `split`: put as many records as fit (default), or one, into a request."
            )
        ),
    ] = None
    max_payload_mb: Annotated[
        int | None,
        Field(
            ge=0,
            le=100,
            description=(
                "Maximum size of a request of a `batch` transform in MB; 6 by default. 0: no limit, and requests"
                " are sent in chunks."
            ),
        ),
    ] = None
    assemble_with: Annotated[
        Literal["None", "Line"] | None,
        Field(description="`Line`: a line feed after each answer of a `batch` transform. By default, nothing."),
    ] = None
    content_type: Annotated[
        ContentType | None, Field(description="MIME type of requests, such as application/json.")
    ] = None
