"""Records what a run of a job read in the history of the current folder, for the next plan of the job."""

from __future__ import annotations

from smdp_launch.diagnosis.verdict import diagnose
from smdp_launch.jobs.records.history import record_input_rate
from smdp_launch.jobs.records.lines import InputRate
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.sizing.measured import channels_mb_s, measured_mb_s

#: The rate of a run with fewer intervals of each worker is mostly that of the start of the loader: no plan uses it.
FEW_WINDOWS = 3
_DIGITS = 4


def record_input(job: str, metrics: RunMetrics) -> None:
    """Record what ``job`` read, if it was launched from this folder and ran long enough to show it."""
    verdict = diagnose(metrics)
    rate = measured_mb_s(verdict)
    if rate is None or verdict.windows < FEW_WINDOWS or verdict.silent:  # without the bytes of some workers
        return
    hosts = len({one.host for one in verdict.workers})
    channels = {name: _rounded(one) for name, one in sorted(channels_mb_s(verdict).items())}
    record_input_rate(InputRate(job, _rounded(rate), hosts, channels or None))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
