"""A job's channels as the SDK's input objects."""

from __future__ import annotations

from typing import Any

from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.planning.job_input import JobLike, plan_of
from smdp_launch.planning.plan import Plan
from smdp_launch.sdk.installed import sdk

#: The request leaves this value out, which means the same.
_NO_WRAPPING = "None"


def build_inputs(job: JobLike | Plan, *, quiet: bool = True) -> dict[str, Any] | None:
    """The channels of ``job``, by name, for the ``fit`` of the estimator from ``build_estimator``.

    Args:
        job: path of a job file, mapping, JobSpec or Plan.
        quiet: suppress the SDK's notices.

    Returns:
        A ``TrainingInput`` for each channel in S3 and a ``FileSystemInput`` for each file system; None for a job
        without channels.

    Raises:
        JobFileRefused: the job has errors.
        EnvironmentProblem: version 2 of the SageMaker Python SDK is not installed.

    ::

        estimator.fit(build_inputs("job.yaml"))
    """
    inputs = sdk("sagemaker.inputs", quiet)
    return {name: _input(inputs, channel) for name, channel in sorted(plan_of(job).spec.channels.items())} or None


def _input(inputs: Any, channel: S3Channel | FsxChannel | EfsChannel) -> Any:
    if isinstance(channel, S3Channel):
        return inputs.TrainingInput(
            channel.s3,
            distribution=channel.distribution,
            s3_data_type=channel.data_type,
            input_mode=channel.mode,
            content_type=channel.content_type,
            compression=channel.compression if channel.compression != _NO_WRAPPING else None,
            record_wrapping=channel.record_wrapping if channel.record_wrapping != _NO_WRAPPING else None,
            attribute_names=channel.attributes,
            instance_groups=channel.groups,
            shuffle_config=inputs.ShuffleConfig(channel.shuffle) if channel.shuffle is not None else None,
        )
    is_fsx = isinstance(channel, FsxChannel)
    return inputs.FileSystemInput(
        file_system_id=channel.fsx if isinstance(channel, FsxChannel) else channel.efs,
        file_system_type="FSxLustre" if is_fsx else "EFS",
        directory_path=channel.path,
        file_system_access_mode=channel.access,
    )
