"""A job that was written down here and that the service does not know: its resumption was cut off in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.records.history import find_launch


def _is_unknown(error: BaseException | None) -> bool:
    """Whether botocore's ``error`` is the service's answer that there is no such job."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError) or error.operation_name != "DescribeTrainingJob":
        return False
    return bool(error.response["Error"]["Code"] == "ValidationException")


def goes_on_from(job: str, error: ServiceProblem) -> str | None:
    """The job that ``job`` was to go on from, where ``error`` says that ``job`` was never created."""
    launched = find_launch(job)
    return launched.resumes if launched is not None and _is_unknown(error.__cause__) else None


@contextmanager
def never_created_told(job: str) -> Iterator[None]:
    """Adds to the refusal of a question about ``job`` how it comes to be created after all."""
    try:
        yield
    except ServiceProblem as error:
        old = goes_on_from(job, error)
        if old is None:
            raise
        raise ServiceProblem(f"{error}; it was never created: smdp-launch resume {old}") from error.__cause__
