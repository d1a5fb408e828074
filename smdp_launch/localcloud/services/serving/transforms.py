"""The SageMaker calls about transform jobs, and their folders."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from smdp_launch.catalog.hosting.quotas import of_transforms, transform_limits
from smdp_launch.localcloud import endpoint_state
from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import transform_job_arn
from smdp_launch.localcloud.endpoint_state import Deployment, TransformState
from smdp_launch.localcloud.errors import ServiceError, damaged, validation
from smdp_launch.localcloud.files import read_json, remove_tree, write_json
from smdp_launch.localcloud.layout import JOB_NAME, StateFolder, TransformFolder
from smdp_launch.localcloud.processes import kill_processes_below
from smdp_launch.localcloud.protocol import caller
from smdp_launch.localcloud.protocol.requests import Action, Parameters, checked, split_uri
from smdp_launch.localcloud.services import quotas
from smdp_launch.localcloud.services.listing import Entry, listed
from smdp_launch.localcloud.services.serving.configurations import MAX_HOSTS
from smdp_launch.localcloud.services.serving.models import container, unsupported
from smdp_launch.localcloud.services.serving.resources import Resources
from smdp_launch.localcloud.services.supervised import Supervised, write_request
from smdp_launch.localcloud.services.tags import check_tags

_SUPERVISOR = "smdp_launch.localcloud.runtime.serving.transform"


class TransformService:
    """The server's main thread calls `reap`, the threads of requests all else."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state
        self._models: Resources | None = None
        self._account: AccountFile | None = None
        self._admission = threading.Lock()  # held from the check of the quota until the job exists
        self._supervised = Supervised(state, state.transforms, TransformFolder, _SUPERVISOR)

    def actions(self, models: Resources, account: AccountFile) -> dict[str, Action]:
        self._models, self._account = models, account
        one = (self.CreateTransformJob, self.DescribeTransformJob, self.StopTransformJob, self.ListTransformJobs)
        return checked("sagemaker", *one)

    def active(self) -> bool:
        """Whether a transform job runs."""
        return self._supervised.active()

    def reap(self) -> None:
        """Finalize jobs whose supervisor died. Called periodically."""
        self._supervised.reap(self._finalize)

    def CreateTransformJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802 (the service's names)
        _check(request)
        name = request["TransformJobName"]
        model = self._models.get(request["ModelName"]).request if self._models is not None else {}
        deployment = Deployment(1, name, [_variant(request, model)])

        def write(draft: TransformFolder) -> None:
            now = round(time.time(), 3)
            write_request(draft, request, caller.region())
            endpoint_state.write_deployment(draft.deployment, deployment)
            endpoint_state.write(draft.state, TransformState(now, now))

        with self._admission:
            self._admit(request["TransformResources"])
            self._supervised.start(name, write, _taken)
        return {"TransformJobArn": transform_job_arn(name, caller.region())}

    def DescribeTransformJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["TransformJobName"])
        state = self._read(folder)
        answer: dict[str, Any] = {
            "MaxConcurrentTransforms": 0,
            "MaxPayloadInMB": 6,
            "BatchStrategy": "MultiRecord",
            "Environment": {},
            **(read_json(folder.request) or {}),
            **_identity(folder),
            "TransformJobStatus": state.status,
            "CreationTime": state.created,
        }
        times = {"TransformStartTime": state.started, "TransformEndTime": state.ended, "FailureReason": state.failure}
        return {**answer, **{name: value for name, value in times.items() if value is not None}}

    def StopTransformJob(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        folder = self._find(request["TransformJobName"])
        status = self._read(folder).status
        if status not in ("InProgress", "Stopping"):
            raise validation(f"The request was rejected because the transform job is in status {status}.")
        write_json(folder.stop, {"time": time.time()})
        return {}

    def ListTransformJobs(self, request: Parameters) -> Mapping[str, Any]:  # noqa: N802
        entries = []
        for folder in self._state.transform_folders():
            if folder.region == caller.region():
                state = self._read(folder)
                fields = {
                    **_identity(folder),
                    "CreationTime": state.created,
                    "TransformEndTime": state.ended,
                    "LastModifiedTime": state.modified,
                    "TransformJobStatus": state.status,
                    "FailureReason": state.failure,
                }
                summary = {name: value for name, value in fields.items() if value is not None}
                entries.append(Entry(folder.name, state.created, summary, state.modified, state.status))
        page, following = listed(entries, request)
        return {"TransformJobSummaries": page, **following}

    def tags(self, name: str) -> Mapping[str, str]:
        return self._supervised.tags(self._find(name))

    def change_tags(self, name: str, added: Mapping[str, str], removed: Iterable[str]) -> None:
        self._supervised.change_tags(self._find(name), added, removed)

    def _admit(self, wanted: Mapping[str, Any]) -> None:
        """Raises ServiceError where the job exceeds the account's quota."""
        kind, count = wanted["InstanceType"], int(wanted["InstanceCount"])
        used = 0
        for folder in self._state.transform_folders():
            state = endpoint_state.read_transform(folder.state)
            if folder.region == caller.region() and state is not None and not state.has_ended:
                resources = (read_json(folder.request) or {}).get("TransformResources", {})
                used += int(resources.get("InstanceCount", 0)) if resources.get("InstanceType") == kind else 0
        name = of_transforms(kind)
        quota = self._account.read().quota_of(name) if self._account is not None else used + count
        if used + count > quota:
            raise quotas.refusal(name, quota=quota, used=used, requested=count)

    def _find(self, name: str) -> TransformFolder:
        folder = TransformFolder(self._state.transforms / name) if JOB_NAME.fullmatch(name) else None
        if folder is None or not folder.state.exists() or folder.region != caller.region():
            raise ServiceError(
                "ValidationException", f'Could not find requested job with name "{name}" in this account and region.'
            )
        return folder

    def _read(self, folder: TransformFolder) -> TransformState:
        state = endpoint_state.read_transform(folder.state)
        if state is None:
            raise damaged(folder.state)
        if folder.stop.exists() and not state.has_ended:
            state.status = "Stopping"
        return state

    def _finalize(self, folder: TransformFolder) -> bool:
        """Clean up after a supervisor that has exited; False where that fails for now, as on a full disk."""
        state = endpoint_state.read_transform(folder.state)
        try:
            if folder.hosts.exists() or folder.models.exists():
                kill_processes_below(folder.hosts)
                for tree in (folder.hosts, folder.models, folder.root / "scratch"):
                    remove_tree(tree)
            if state is not None and not state.has_ended:
                reason = "InternalServerError: the job's supervisor died (killed, or out of memory); see "
                state.end("Failed", f"{reason}{folder.supervisor_log}", time.time())
                endpoint_state.write(folder.state, state)
        except OSError:
            return False
        return True


def _identity(folder: TransformFolder) -> dict[str, str]:
    return {
        "TransformJobName": folder.name,
        "TransformJobArn": transform_job_arn(folder.name, caller.region()),
    }


def _taken(folder: TransformFolder) -> ServiceError:
    there = f" The local cloud keeps names unique in all regions: {folder.region} has the job."
    message = "Job name must be unique within an AWS account and region, and a job with this name already exists "
    message += f"({transform_job_arn(folder.name, caller.region())})."
    return ServiceError("ResourceInUse", message if folder.region == caller.region() else f"{message}{there}")


def _variant(request: Parameters, model: Mapping[str, Any]) -> dict[str, Any]:
    """The job's hosts as those of a variant, with the job's name."""
    own = container(model)
    environment = {**own.get("Environment", {}), **request.get("Environment", {})}
    served = {**model, "PrimaryContainer": {**own, "Environment": environment}}
    served.pop("Containers", None)
    resources = request["TransformResources"]
    return {
        "VariantName": request["TransformJobName"],
        "ModelName": request["ModelName"],
        "InstanceType": resources["InstanceType"],
        "InitialInstanceCount": resources["InstanceCount"],
        "Model": served,
    }


def _check(request: Parameters) -> None:
    """Raises ServiceError for a request that the service or the local cloud refuses."""
    check_tags(request.get("Tags", []))
    source = request["TransformInput"]["DataSource"]["S3DataSource"]
    if source["S3DataType"] != "S3Prefix":
        raise unsupported(f"S3DataType {source['S3DataType']!r} of TransformInput; only S3Prefix")
    filters = request.get("DataProcessing", {})
    if filters.get("InputFilter", "$") != "$" or filters.get("OutputFilter", "$") != "$":
        raise unsupported("the filters of DataProcessing")
    if filters.get("JoinSource", "None") != "None":
        raise unsupported("JoinSource of DataProcessing")
    if request["TransformResources"]["InstanceCount"] > MAX_HOSTS:
        raise unsupported(f"more than {MAX_HOSTS} hosts of a transform job")
    split_uri(source["S3Uri"], "TransformInput.DataSource.S3DataSource.S3Uri")
    split_uri(request["TransformOutput"]["S3OutputPath"], "TransformOutput.S3OutputPath")
    most = transform_limits()
    payload = request.get("MaxPayloadInMB", most.default_payload_mb)
    if payload > most.payload_mb:
        raise validation(f"MaxPayloadInMB must not be greater than {most.payload_mb} (MB).")
    if max(1, request.get("MaxConcurrentTransforms", 1)) * payload > most.in_progress_mb:
        raise validation(
            f"MaxConcurrentTransforms times MaxPayloadInMB must not be greater than {most.in_progress_mb} (MB)."
        )
