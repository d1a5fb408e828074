"""The differences between a planned estimator and the SDK's: the job's name, its archive, and request fields that the
SDK has no argument for.

The rest is the SDK's own: a changed attribute of the estimator is in the request.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from smdp_launch.checking.inputs import MB
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.jobs.transfer.upload import encryption
from smdp_launch.planning.plan import Plan
from smdp_launch.request.build import PLAN_TAG, Request, checkpoint_location, plan_hash, with_overlay
from smdp_launch.request.hyperparameters import encode, encode_value
from smdp_launch.request.names import S3Location, job_name, source_location
from smdp_launch.request.resources import instance_preferences
from smdp_launch.request.toolkit import INSTANCE_TYPE
from smdp_launch.rules.request.placeholders import to_fill_in
from smdp_launch.sdk.installed import sdk, without_notices
from smdp_launch.source.archive import write_archive
from smdp_launch.source.scan import SourceTree, normal_name, scan_source
from smdp_launch.source.script.outputs import output_folders

CREATE = "provide-client-params.sagemaker.CreateTrainingJob"
#: Bytes; larger archives are packed on disk.
_IN_MEMORY = 16 << 20


class PlannedTraining:
    """A base class before one of the SDK's estimators.

    Attributes:
        plan: the first ``fit`` submits it under the plan's name. Each later ``fit`` is a job with a new name.
    """

    plan: Plan | None = None
    _quiet = True
    _uploaded: SourceTree | None = None

    def fit(
        self: Any,
        inputs: Any = None,
        wait: bool = True,
        logs: str = "All",
        job_name: str | None = None,
        experiment_config: dict[str, str] | None = None,
    ) -> None:
        """Train, as the SDK's own ``fit`` with the same arguments.

        Raises:
            Refused: the job has placeholders.
            EnvironmentProblem: the session belongs to a pipeline or to the SDK's local mode.
        """
        if self.plan is None:  # made by the SDK's attach()
            super().fit(inputs, wait, logs, job_name, experiment_config)  # type: ignore[misc]
            return
        if self.plan.placeholders:
            raise Refused(to_fill_in(self.plan.placeholders), self.plan.launch_problems)
        _require_training(self.sagemaker_session)
        name = job_name or next_name(self.plan, is_first=not self.jobs)
        if self.checkpoint_s3_uri == checkpoint_location(self.plan.spec, self._current_job_name or self.plan.job):
            self.checkpoint_s3_uri = checkpoint_location(self.plan.spec, name)
        # All estimators of the SDK call this method; the frameworks' own versions only handle recipes.
        fit = sdk("sagemaker.estimator").EstimatorBase.fit
        if self._quiet:
            fit = fit.__wrapped__  # without the decorator that sends telemetry
        with without_notices(self._quiet), self._completing(name):
            fit(self, inputs, wait=False, logs=logs, job_name=name, experiment_config=experiment_config)
        if wait:
            self.latest_training_job.wait(logs=logs)

    def set_hyperparameters(self: Any, **given: Any) -> None:
        """As the SDK's own. The SDK's framework estimators encode values themselves: encoded twice, a number arrives as
        text."""
        is_framework = isinstance(self, sdk("sagemaker.estimator").Framework)
        self._hyperparameters.update(given if is_framework else encode(given))

    def hyperparameters(self) -> dict[str, str]:
        """The values in the launcher's encoding: the SDK's differs in the order of keys and for non-ASCII letters."""
        given: Mapping[str, str] = super().hyperparameters()  # type: ignore[misc]
        return encode({name: json.loads(value) for name, value in given.items()})

    def _stage_user_code_in_s3(self: Any) -> Any:
        """Upload the launcher's archive in place of the SDK's: it applies the ignore file, and equal folders give equal
        archives."""
        self._uploaded = None
        if self.plan is None or self.dependencies or self.source_dir.startswith("s3://"):
            return super()._stage_user_code_in_s3()  # type: ignore[misc]
        folder, entry = Path(self.source_dir), normal_name(self.entry_point)
        source = scan_source(folder, self.plan.spec.script.source_limit_mb * MB, output_folders(folder, entry))
        where = source_location(self.code_location or self.output_path, self._current_job_name)
        # As in the SDK: the key is for the bucket of the results.
        is_with_results = where.bucket == S3Location.parse(self.output_path).bucket
        key = self.output_kms_key if is_with_results else None
        upload(self.sagemaker_session.boto_session, source, where, key)
        self._uploaded = source
        return sdk("sagemaker.fw_utils").UploadedCode(s3_prefix=str(where), script_name=normal_name(self.entry_point))

    @contextmanager
    def _completing(self: Any, name: str) -> Iterator[None]:
        """Complete the request of the job ``name``, and of no other, with the fields that the SDK has no argument
        for."""

        def complete(params: Request, **_: object) -> Request | None:
            return completed(params, self.plan, self._uploaded) if params["TrainingJobName"] == name else None

        events = self.sagemaker_session.sagemaker_client.meta.events
        events.register(CREATE, complete)
        try:
            yield
        finally:
            events.unregister(CREATE, complete)


def completed(request: Request, plan: Plan, source: SourceTree | None) -> Request:
    """The SDK's request with the fields that the SDK has no argument for, and the tag with the plan's hash."""
    spec, request = plan.spec, dict(request)
    if "InputDataConfig" in request:
        request["InputDataConfig"] = [_with_mode(one) for one in request["InputDataConfig"]]
    if spec.compute.max_pending is not None:
        pending = {"MaxPendingTimeInSeconds": spec.compute.max_pending}
        request["StoppingCondition"] = request["StoppingCondition"] | pending
    if spec.compute.fallback_types is not None:
        resources = dict(request["ResourceConfig"])
        # A changed type of the estimator can be one of the others.
        types = list(dict.fromkeys([resources.pop("InstanceType"), *spec.compute.fallback_types]))
        preferences = instance_preferences(types, resources.pop("InstanceCount"), spec.compute.training_plan)
        request["ResourceConfig"] = resources | {"InstancePreferences": preferences}
        given: Request = request.get("HyperParameters", {})
        request["HyperParameters"] = {name: value for name, value in given.items() if name != INSTANCE_TYPE}
    elif spec.compute.training_plan is not None:
        request["ResourceConfig"] = request["ResourceConfig"] | {"TrainingPlanArn": spec.compute.training_plan}
    request |= _type_of_hosts(request)
    if spec.remote_debug:
        request["RemoteDebugConfig"] = {"EnableRemoteDebug": True}
    tags: list[Any] = request.pop("Tags", [])
    request = with_overlay(request, spec.overlay)
    tags += request.get("Tags", [])
    if source is not None:
        tags.append({"Key": PLAN_TAG, "Value": plan_hash(request, source)})
    return request | {"Tags": tags}


def _with_mode(channel: Request) -> Request:
    """Set the input mode that the SDK leaves out for the channel of the source archive: it would be the job's."""
    return channel if "S3DataSource" not in channel["DataSource"] else {"InputMode": "File"} | channel


def _type_of_hosts(request: Request) -> Request:
    """The hyperparameters with the type of the hosts: the generic estimator does not set it, and its type can be
    changed."""
    given, kind = request.get("HyperParameters", {}), request["ResourceConfig"].get("InstanceType")
    return {"HyperParameters": given | {INSTANCE_TYPE: encode_value(kind)}} if kind and INSTANCE_TYPE in given else {}


def _require_training(session: Any) -> None:
    if session.local_mode:
        raise EnvironmentProblem("the SDK's local mode does not run these jobs: use smdp-launch launch --local")
    if isinstance(session, sdk("sagemaker.workflow.pipeline_context").PipelineSession):
        raise EnvironmentProblem("the session of a pipeline starts no job: give build_estimator a sagemaker.Session")


def next_name(plan: Plan, *, is_first: bool) -> str:
    """The plan's name for the first job, and a new one for each later job."""
    if is_first:
        return plan.job
    return job_name(plan.spec.name, datetime.now(timezone.utc), secrets.randbelow(1 << 16))


def upload(session: Any, source: SourceTree, where: S3Location, key: str | None) -> None:
    """Put the launcher's archive of ``source`` there, with the credentials of the boto3 ``session``, encrypted with the
    KMS ``key``."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
        write_archive(source, packed)
        packed.seek(0)
        session.client("s3").put_object(Bucket=where.bucket, Key=where.key, Body=packed, **encryption(key))
