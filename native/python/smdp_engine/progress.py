"""Reports the progress of a training script as event lines on its standard output (docs/reference/events.md).

The follower of a job draws its progress bar from these lines. The lines are printed outside a job too.
"""

import json
import math
import os
import sys
import time
from typing import Union

EVENT_VERSION = 1

Value = Union[int, float, str, bool]


def emit(event: str, **fields: Value) -> None:
    """Print one event line: ``{"smdp_event": 1, "event": event, "time": <epoch seconds>, "rank": ..., **fields}``.

    Field names that the envelope uses (``smdp_event``, ``event``, ``time``, ``rank``) are refused with ValueError.
    """
    envelope = {
        "smdp_event": EVENT_VERSION,
        "event": event,
        "time": round(time.time(), 3),
        "rank": int(os.environ.get("RANK", "0")),
    }
    reserved = envelope.keys() & fields.keys()
    if reserved:
        raise ValueError(f"{', '.join(sorted(reserved))}: reserved by the event line, choose another name")
    # One write call, so that lines of several threads cannot mix; allow_nan would give invalid JSON.
    line = json.dumps({**envelope, **{name: _plain(value) for name, value in fields.items()}}, allow_nan=False)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    if envelope["rank"] == 0 and "SMDP_TRACKING" in os.environ:  # without it, the module is not even imported
        from . import tracking

        tracking.report(line)


def step(done: int, total: int, **metrics: Value) -> None:
    """Report that optimizer step ``done`` of ``total`` (both counted from 1) has finished, on rank 0 only.

    Metrics are numbers or short texts, such as ``loss=0.31``; the follower shows them beside the bar.
    """
    if int(os.environ.get("RANK", "0")) == 0:
        emit("step", step=done, steps=total, **metrics)


def _plain(value: Value) -> Value:
    """JSON has no NaN and no infinities; their names are written instead."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
