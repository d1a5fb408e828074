"""Fields of a request as shapes of the SageMaker Python SDK, version 3."""

from __future__ import annotations

import re
from typing import Any

from smdp_launch.request.build import Request

#: Between the words of a field's name, such as S3DataSource.
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def shape(kind: Any, fields: Request | None) -> Any:
    """A shape of the class ``kind``; None without any fields."""
    return kind(**_snake_case(fields)) if fields else None


def _snake_case(value: Any) -> Any:
    """``value`` with the SDK's names of fields, such as ``s3_data_source``."""
    if isinstance(value, dict):
        return {_WORDS.sub("_", name).lower(): _snake_case(one) for name, one in value.items()}
    return [_snake_case(one) for one in value] if isinstance(value, list) else value
