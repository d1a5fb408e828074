"""The differences between a planned model trainer and the SDK's: the job's name, its archive, and request fields that
the SDK has no argument for.

The rest is the SDK's own: a changed attribute of the trainer is in the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import PrivateAttr

from smdp_launch.checking.inputs import MB
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.planning.plan import Plan
from smdp_launch.request.build import Request, channels, checkpoint_location
from smdp_launch.request.hyperparameters import encode
from smdp_launch.request.names import source_location
from smdp_launch.request.toolkit import INSTANCE_TYPE, launch_hyperparameters
from smdp_launch.rules.request.placeholders import to_fill_in
from smdp_launch.sdk.installed import sdk, without_notices
from smdp_launch.sdk.shapes import shape
from smdp_launch.sdk.training import CREATE, completed, next_name, upload
from smdp_launch.source.scan import normal_name, scan_source
from smdp_launch.source.script.outputs import output_folders


def _sdk(name: str) -> Any:
    return sdk(name, version="3")


class PlannedTrainer:
    """A base class before the SDK's ``ModelTrainer``.

    Attributes:
        plan: the first ``train`` submits it under the plan's name. Each later ``train`` is a job with a new name.
    """

    @property
    def plan(self: Any) -> Plan | None:
        plan: Plan | None = self._plan
        return plan

    def train(
        self: Any,
        input_data_config: Any = None,
        wait: bool = True,
        logs: bool = True,
        dry_run: bool = False,
    ) -> None:
        """Train, as the SDK's own ``train`` with the same arguments.

        Raises:
            Refused: the job has placeholders.
            EnvironmentProblem: the session belongs to a pipeline, or the trainer to the SDK's local mode.
        """
        plan = self._plan
        if plan is None:  # a copy, or one that the SDK made
            super().train(input_data_config, wait, logs, dry_run)  # type: ignore[misc]
            return
        self._require_training(plan)
        name = next_name(plan, is_first=self._latest_training_job is None)
        self._rename(plan, name)
        submit = _sdk("sagemaker.train.model_trainer").ModelTrainer.train
        if self._quiet:
            submit = submit.__wrapped__  # without the decorator that sends telemetry
        with without_notices(self._quiet), self._completing(plan, name, dry_run):
            submit(self, input_data_config, wait=False, logs=logs and not wait, dry_run=dry_run)
        if wait and not dry_run:
            self._latest_training_job.wait(logs=logs)

    def _require_training(self: Any, plan: Plan) -> None:
        if plan.placeholders:
            raise Refused(to_fill_in(plan.placeholders), plan.launch_problems)
        if self.training_mode is not _sdk("sagemaker.train.model_trainer").Mode.SAGEMAKER_TRAINING_JOB:
            raise EnvironmentProblem("the SDK's local mode does not run these jobs: use smdp-launch launch --local")
        if isinstance(self.sagemaker_session, _sdk("sagemaker.core.workflow.pipeline_context").PipelineSession):
            raise EnvironmentProblem("the session of a pipeline starts no job: give build_model_trainer a Session")

    def _rename(self: Any, plan: Plan, name: str) -> None:
        """Set the name of the next job, and its location of checkpoints unless the user has changed that."""
        checkpoints = self.checkpoint_config
        if checkpoints is not None and checkpoints.s3_uri == checkpoint_location(plan.spec, self._job or plan.job):
            checkpoints.s3_uri = checkpoint_location(plan.spec, name)
        self._job = name

    def _create_training_job_args(self: Any, input_data_config: Any = None, boto3: bool = False) -> dict[str, Any]:
        arguments: dict[str, Any] = super()._create_training_job_args(  # type: ignore[misc]
            input_data_config, boto3
        )
        plan, name = self._plan, self._job
        if plan is None or name is None:
            return arguments
        # The SDK encodes text as it is, and numbers in the order and with the escapes of its own.
        own = launch_hyperparameters(plan.spec, name)
        if INSTANCE_TYPE in own:
            own |= encode({INSTANCE_TYPE: self.compute.instance_type})
        arguments |= {"training_job_name": name, "hyper_parameters": encode(self.hyperparameters) | own}
        added = [one for one in channels(plan.spec, name) if one["ChannelName"] not in plan.spec.channels]
        given, kind = arguments["input_data_config"] or [], _sdk("sagemaker.core.training.configs").Channel
        arguments["input_data_config"] = [*given, *(shape(kind, one) for one in added)] or None
        self._zero_seeds = {one.channel_name for one in given if _has_seed_of_zero(one)}
        return arguments

    def _with_zero_seeds(self: Any, params: Request) -> Request:
        """With the seeds of 0 of the channels' shuffles, which the SDK drops because they are false."""
        seed = {"ShuffleConfig": {"Seed": 0}}
        data = [
            one | seed if one["ChannelName"] in self._zero_seeds else one for one in params.get("InputDataConfig", [])
        ]
        return {**params, "InputDataConfig": data} if data else params

    @contextmanager
    def _completing(self: Any, plan: Plan, name: str, dry_run: bool) -> Iterator[None]:
        """Upload the source, and complete the request of the job ``name``, and of no other, with the fields that the
        SDK has no argument for."""
        if dry_run:
            yield
            return
        source_folder = plan.source.folder
        ignored = output_folders(source_folder, normal_name(plan.spec.script.entry))
        source = scan_source(source_folder, plan.spec.script.source_limit_mb * MB, ignored)
        boto_session = self.sagemaker_session.boto_session
        key = plan.spec.encryption.output_key
        upload(boto_session, source, source_location(plan.spec.output.s3, name), key)

        def complete(params: Request, **_: object) -> Request | None:
            return completed(self._with_zero_seeds(params), plan, source) if params["TrainingJobName"] == name else None

        events = _sdk("sagemaker.core.resources").Base.get_sagemaker_client(session=boto_session).meta.events
        events.register(CREATE, complete)
        try:
            yield
        finally:
            events.unregister(CREATE, complete)


def _has_seed_of_zero(channel: Any) -> bool:
    """Whether the SDK's Channel is shuffled with the seed 0."""
    return getattr(getattr(channel, "shuffle_config", None), "seed", None) == 0


def make_trainer(plan: Plan, quiet: bool, arguments: dict[str, Any]) -> Any:
    """The SDK's ``ModelTrainer`` with ``arguments``, which submits ``plan``."""
    base = sdk("sagemaker.train.model_trainer", quiet, "3").ModelTrainer
    private = {"_plan": Plan | None, "_quiet": bool, "_job": str | None, "_zero_seeds": set[str]}
    defaults: dict[str, Any] = {
        "_plan": PrivateAttr(default=None),
        "_quiet": PrivateAttr(default=True),
        "_job": PrivateAttr(default=None),
        "_zero_seeds": PrivateAttr(default_factory=set),
    }
    namespace = {"__annotations__": private, "__doc__": base.__doc__, "__module__": __name__, **defaults}
    trainer = type(base)(base.__name__, (PlannedTrainer, base), namespace)(**arguments)
    trainer._plan, trainer._quiet = plan, quiet
    return trainer
