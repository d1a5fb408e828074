"""The names that Service Quotas gives to the quotas of SageMaker, and the limits of a batch transform.

The messages of ResourceLimitExceeded have the same names.
"""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.catalog.tables import table

#: The sum of MaxConcurrency over all serverless variants of an account and region (L-96300102).
SERVERLESS = "Maximum total concurrency that can be allocated across all serverless endpoints"


def of_training(instance_type: str, *, spot: bool = False) -> str:
    return f"{instance_type} for {'spot ' if spot else ''}training job usage"


def of_endpoints(instance_type: str) -> str:
    return f"{instance_type} for endpoint usage"


def of_transforms(instance_type: str) -> str:
    return f"{instance_type} for transform job usage"


class TransformLimits(NamedTuple):
    """What a batch transform may send, in MB of 2**20 bytes.

    Args:
        default_payload_mb: of a request, if the job does not set it.
        payload_mb: most of a request.
        in_progress_mb: most of a request, times the requests at a time.
    """

    default_payload_mb: int
    payload_mb: int
    in_progress_mb: int


def transform_limits() -> TransformLimits:
    known = table("hosting")["transforms"]
    return TransformLimits(*(known[name] for name in TransformLimits._fields))
