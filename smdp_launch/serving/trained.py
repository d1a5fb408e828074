"""The model of a training job that has ended."""

from __future__ import annotations

from smdp_launch.errors import Refused
from smdp_launch.jobs.records.outcome import ENDED
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.status.description import describe_training_job


def model_of(clients: Clients, job: str) -> str:
    """The S3 URI of the model that the job has written.

    Raises:
        Refused: the job still runs, or wrote no model.
        ServiceProblem: the service does not know the job, refused, or did not answer.
    """
    described = describe_training_job(clients, job)
    status = str(described["TrainingJobStatus"])
    if status not in ENDED:
        secondary = described.get("SecondaryStatus", status)
        raise Refused(f"{job} still runs ({secondary}): deploy its model when it has ended")
    model = described.get("ModelArtifacts", {}).get("S3ModelArtifacts")
    if not model:
        raise Refused(f"{job} wrote no model ({status}): its script saved nothing in SM_MODEL_DIR")
    return str(model)
