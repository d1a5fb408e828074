"""Reports each save as an event, and at the first one whether a save fits into the notice of a spot interruption."""

import sys
from typing import Any, Mapping, Optional

from .. import progress

#: Seconds from SIGTERM until the entrypoint kills the workers; the platform kills the container 5 s later.
USABLE = 115.0


def report_save(step: int, outcome: Mapping[str, Any], stalled: Optional[float], is_first: bool) -> None:
    seconds, size, host_bytes = float(outcome["seconds"]), int(outcome["bytes"]), int(outcome["host_bytes"])
    progress.emit(
        "checkpoint_saved",
        step=step,
        bytes=size,
        host_bytes=host_bytes,
        hosts=int(outcome["hosts"]),
        world_size=int(outcome["world_size"]),
        seconds=seconds,
        stall_s=round(seconds if stalled is None else stalled, 3),
        spare_s=round(USABLE - seconds, 3),
    )
    if is_first:
        sys.stderr.write(f"smdp: {first_save(step, seconds, size, host_bytes)}\n")


def first_save(step: int, seconds: float, size: int, host_bytes: int) -> str:
    spare = USABLE - seconds
    saved = f"the first checkpoint, of step {step}, has {_size(size)} and took {seconds:.1f} s"
    if spare <= 0:
        return (
            f"{saved}: more than the {USABLE:.0f} s that a spot interruption leaves. Save regularly, since a save "
            "after the notice will not be complete"
        )
    return (
        f"{saved}. A spot interruption leaves {USABLE:.0f} s: a save after the notice reaches S3 if each host uploads "
        f"{_size(host_bytes)} in {spare:.0f} s, {_size(host_bytes / spare)}/s"
    )


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
