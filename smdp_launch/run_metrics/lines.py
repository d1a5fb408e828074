"""The events of a run as lines of metrics.jsonl (docs/how-to/watch/tracking.md). Does no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: Version of a line; raised when a field changes its meaning or is removed.
VERSION = 1


def metrics_line(
    job: str, name: str, fields: Mapping[str, Any], host: str, worker: int | None, time: float
) -> dict[str, Any]:
    """An event as one flat mapping: all of its fields, after those that say whose it is.

    Args:
        host: of the log that has the event.
        worker: the rank that wrote it; None for the host.
        time: of its log line, in seconds since 1970; the event's own time is preferred.
    """
    own = fields.get("time")
    is_time = isinstance(own, int | float) and not isinstance(own, bool) and math.isfinite(own)
    head = {
        "metrics": VERSION,
        "job": job,
        "time": own if is_time else time,
        "host": host,
        "rank": worker,
        "event": name,
    }
    return head | {key: value for key, value in fields.items() if key not in head and key != "smdp_event"}
