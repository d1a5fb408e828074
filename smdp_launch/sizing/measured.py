"""How many bytes a second a run needed, from its verdict."""

from __future__ import annotations

from smdp_launch.diagnosis.blame import INPUT
from smdp_launch.diagnosis.verdict import Verdict


def measured_mb_s(verdict: Verdict) -> float | None:
    """MB/s that the job would read if no worker waited for input; None if no bytes were measured.

    The bytes are those that the loader read within its fetches, also from caches of the host.
    """
    useful = _useful_s(verdict)
    if useful is None or verdict.bytes_step <= 0:
        return None
    return verdict.bytes_step / useful / 1e6


def channels_mb_s(verdict: Verdict) -> dict[str, float]:
    """The same for each channel whose bytes the hosts count."""
    useful, rates = _useful_s(verdict), dict[str, float]()
    if useful is None or verdict.step_s is None:
        return {}
    for host in verdict.hosts.values():
        for name, value in host.values.items():
            if name.startswith("channel_") and name.endswith("_bytes") and host.seconds > 0:
                channel = name[len("channel_") : -len("_bytes")]
                bytes_step = value / host.seconds * verdict.step_s
                rates[channel] = rates.get(channel, 0.0) + bytes_step / useful / 1e6
    return rates


def _useful_s(verdict: Verdict) -> float | None:
    """Seconds of a step in which no worker waits for input; at least a hundredth of it."""
    if verdict.step_s is None or verdict.step_s <= 0:
        return None
    waited = sum(verdict.shares.get(cause, 0.0) for cause in INPUT) * verdict.step_s
    return max(verdict.step_s - waited, 0.01 * verdict.step_s)
