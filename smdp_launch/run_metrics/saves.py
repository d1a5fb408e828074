"""The saves of checkpoints that a job reports, and whether a save fits into the notice of a spot interruption."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smdp_launch.units import count, size

#: Seconds from the notice until the entrypoint kills the workers. SageMaker kills the container 120 s after the notice.
USABLE = 115.0
_MOST = float(1 << 63)


@dataclass
class SaveMetrics:
    """The event ``checkpoint_saved`` of a run (docs/reference/events.md).

    Args:
        saves: how many were reported.
        step, bytes, host_bytes, seconds, stall: of the last save; ``host_bytes`` of the host that wrote the most.
        longest: seconds of the longest save, on which the estimate is based.
    """

    saves: int = 0
    step: int = 0
    bytes: int = 0
    host_bytes: int = 0
    seconds: float = 0.0
    stall: float | None = None
    longest: float = 0.0

    def add(self, fields: Mapping[str, Any]) -> bool:
        """Add an event; False if its values are not valid: a script may print anything."""
        step, whole, host = (_value(fields, name) for name in ("step", "bytes", "host_bytes"))
        seconds = _value(fields, "seconds")
        if step is None or whole is None or seconds is None:
            return False
        self.saves += 1
        self.step, self.bytes, self.seconds = int(step), int(whole), seconds
        self.host_bytes = int(host if host is not None else whole)
        self.stall = _value(fields, "stall_s")
        self.longest = max(self.longest, seconds)
        return True

    @property
    def spare(self) -> float:
        """Seconds of the notice that remain for the upload after the longest save; negative if it does not fit."""
        return USABLE - self.longest

    @property
    def rate_needed(self) -> float | None:
        """Bytes per second that each host has to upload in that time; None if a save does not fit."""
        return self.host_bytes / self.spare if self.spare > 0 else None

    def text(self) -> str:
        """Such as ``12 saves, the last of step 120 with 2.4 GB in 1.3 s; ...``."""
        last = (
            f"{count(self.saves, 'save')}, the last of step {self.step} with {size(self.bytes)} in {self.seconds:.1f} s"
        )
        return f"{last}; {self.estimate()}"

    def estimate(self) -> str:
        """Whether a save fits into the notice."""
        if self.rate_needed is None:
            longest = f"the longest took {self.longest:.0f} s"
            return f"a save does not fit into the {USABLE:.0f} s of a spot notice ({longest}): save regularly"
        upload = f"{size(self.host_bytes)} in {self.spare:.0f} s, {size(math.ceil(self.rate_needed))}/s"
        return f"a save fits into a spot notice if each host uploads {upload}"

    def to_json(self) -> dict[str, object]:
        return {
            "saves": self.saves,
            "step": self.step,
            "bytes": self.bytes,
            "host_bytes": self.host_bytes,
            "seconds": self.seconds,
            "stall_seconds": self.stall,
            "longest_seconds": self.longest,
            "spare_seconds": round(self.spare, 3),
            "upload_bytes_per_second_needed": self.rate_needed,
        }


def _value(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        return None
    return float(value)
