"""The service's clock: the Date header of its answers. The clock of this machine may be wrong by minutes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any


def response_time(answer: Mapping[str, Any]) -> datetime | None:
    """When the service answered, in whole seconds; None if the answer has no such header."""
    header = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        at = parsedate_to_datetime(header) if header else None
    except ValueError:
        return None
    return at.replace(tzinfo=timezone.utc) if at is not None and at.tzinfo is None else at
