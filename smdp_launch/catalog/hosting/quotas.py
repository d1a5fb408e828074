"""The names that Service Quotas gives to the quotas of SageMaker.

The messages of ResourceLimitExceeded have the same names.
"""

from __future__ import annotations

#: The sum of MaxConcurrency over all serverless variants of an account and region (L-96300102).
SERVERLESS = "Maximum total concurrency that can be allocated across all serverless endpoints"


def of_training(instance_type: str, *, spot: bool = False) -> str:
    return f"{instance_type} for {'spot ' if spot else ''}training job usage"


def of_endpoints(instance_type: str) -> str:
    return f"{instance_type} for endpoint usage"


def of_transforms(instance_type: str) -> str:
    return f"{instance_type} for transform job usage"
