"""A job that was written down here and that the service does not know: its resumption was cut off in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.history import find_launch


def is_unknown(error: BaseException | None) -> bool:
    """Whether botocore's ``error`` is the service's answer that there is no such job."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError) or error.operation_name != "DescribeTrainingJob":
        return False
    return bool(error.response["Error"]["Code"] == "ValidationException")


@contextmanager
def never_created_told(job: str) -> Iterator[None]:
    """Adds to the refusal of a question about ``job`` how it comes to be created after all."""
    try:
        yield
    except ServiceProblem as error:
        launched = find_launch(job)
        if launched is None or launched.resumes is None or not is_unknown(error.__cause__):
            raise
        fix = f"smdp-launch resume {launched.resumes}"
        raise ServiceProblem(f"{error}; it was never created: {fix}") from error.__cause__
