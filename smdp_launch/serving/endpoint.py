"""A deployed model in Python: its status, its answers and its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

from smdp_launch.errors import EndpointFailed, Refused
from smdp_launch.jobs.records.endpoints import find_served
from smdp_launch.jobs.service.clients import Clients, Connect
from smdp_launch.request.names import S3Location
from smdp_launch.serving.deploy import create_all, existing_deployment, forget, record, roll_back
from smdp_launch.serving.follow import LONGEST_START, wait_until_gone, wait_until_ready
from smdp_launch.serving.invoke import ANY_TYPE, invoke, invoke_async
from smdp_launch.serving.local import let_end_after
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.serving.resources import describe, serving_kind
from smdp_launch.serving.undeploy import Undeployed, undeploy


@dataclass
class Endpoint:
    """The endpoint of a training job, or its batch transform, on AWS or in the local cloud.

    Args:
        name: the name of the training job; a batch transform has another name.
        where: the AWS region, or ``local``.
        kind: as ``serve.kind`` of the job file.
    """

    name: str
    where: str
    kind: str
    connect: Connect = field(repr=False, compare=False)

    def status(self) -> str | None:
        """The service's status now, such as ``InService`` or ``Completed``; None if it does not exist."""
        kind = serving_kind(self.kind)
        with self.connect() as clients:
            found = describe(clients, kind, self.name)
        return str(found[kind.status]) if found is not None else None

    def invoke(self, body: bytes, content_type: str | None = None, *, timeout: float = 900) -> bytes:
        """The answer of the model to ``body``.

        Args:
            content_type: MIME type of the body; by default ``serve.content_type`` of the job file.
            timeout: seconds in which an asynchronous endpoint must answer; its model may take an hour at most.

        Raises:
            Refused: the body is too large, the endpoint does not serve yet, or it is a batch transform.
            ServiceProblem: the endpoint does not exist, the model failed, or the service did not answer.
            WaitTimedOut: an asynchronous endpoint has not answered by then.
        """
        if self.kind == "batch":
            raise Refused(f"{self.name} is a batch transform, which takes no requests")
        known = find_served(self.name)
        sent_as = content_type or (known.content_type if known is not None else None) or ANY_TYPE
        inputs = S3Location.parse(known.inputs) if known is not None and known.inputs is not None else None
        with self.connect() as clients:
            if inputs is not None:
                return invoke_async(clients, self.name, body, sent_as, inputs, timeout).body
            return invoke(clients, self.name, body, sent_as, kind=self.kind).body

    def undeploy(self) -> Undeployed:
        """Delete the endpoint, its configuration, its model and its packed model. Wait until the endpoint is deleted.

        Raises:
            ServiceProblem, EnvironmentProblem: nothing is deleted.
            WaitTimedOut: the service has not removed it after half an hour.
        """
        known = find_served(self.name)
        with self.connect() as clients:
            result = undeploy(clients, self.name, known)
            if self.kind != "batch":
                wait_until_gone(clients, self.name, _pause)
        let_end_after(known)
        return result


def deploy_and_wait(
    clients: Clients, plan: ServingPlan, state: str | None, *, keeps_cloud: bool, timeout: float = LONGEST_START
) -> None:
    """Create the endpoint, or the batch transform, and wait until it is ready. If it is not, nothing of it is left,
    except of an endpoint that existed before.

    Args:
        state: as in the history.
        keeps_cloud: the local cloud runs only for this endpoint.
        timeout: seconds to wait.

    Raises:
        EndpointFailed: the container did not start, or the transform failed.
        WaitTimedOut: it is not ready by then; it exists and continues.
        ServiceProblem, EnvironmentProblem, Refused: as `create_all`.
        KeyboardInterrupt: nothing of it is left.
    """
    wait = partial(wait_until_ready, clients, plan.name, serving_kind(plan.serve.kind), lambda _: None, _pause, timeout)
    if existing_deployment(clients, plan) is not None:
        wait()  # what another run has created is not deleted here
        return
    record(plan, state, keeps_cloud=keeps_cloud)
    created = create_all(clients, plan, on_rolled_back=partial(forget, plan))
    try:
        wait()
    except EndpointFailed as error:
        undone = roll_back(clients, created)
        forget(plan, undone)
        raise EndpointFailed(f"{error}; {undone.text(plan.name)}", error.log) from error
    except KeyboardInterrupt:
        forget(plan, roll_back(clients, created))
        raise


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False
