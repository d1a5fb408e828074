"""The section ``tracking``: where the numbers of a run are sent."""

# No `from __future__ import annotations`: with it, pydantic compiles each string annotation at every start.
from typing import Annotated

from pydantic import Field

from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.types import ContainerPath, S3Uri, TrackerName, TrackingUri


class TensorBoard(Section):
    s3: Annotated[S3Uri, Field(description="Location of the event files; SageMaker adds JOB/tensorboard-output.")]
    path: Annotated[ContainerPath, Field(description="Folder in the container that is copied to `s3`.")] = (
        "/opt/ml/output/tensorboard"
    )


class Mlflow(Section):
    experiment: Annotated[TrackerName, Field(description="Name of the experiment; it is created if it does not exist.")]
    uri: Annotated[
        TrackingUri | None,
        Field(description="URL or SageMaker ARN of the tracking server; by default from MLflow's settings."),
    ] = None


class Wandb(Section):
    project: Annotated[TrackerName, Field(description="Name of the project.")]
    entity: Annotated[
        TrackerName | None, Field(description="User or team; by default from the settings of Weights & Biases.")
    ] = None


class Tracking(Section):
    tensorboard: Annotated[
        TensorBoard | None, Field(description="Copy the event files of TensorBoard to S3 while the job runs.")
    ] = None
    mlflow: Annotated[Mlflow | None, Field(description="Send the numbers to MLflow.")] = None
    wandb: Annotated[Wandb | None, Field(description="Send the numbers to Weights & Biases.")] = None
