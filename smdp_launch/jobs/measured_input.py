"""What earlier runs of a job read, from the history of the current folder, for the next plan of the job."""

from __future__ import annotations

import math
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.records.history import LOCAL, input_rates, runs_of
from smdp_launch.jobs.records.lines import InputRate, Launch
from smdp_launch.sizing.need import MeasuredInput


def measured_input(job_file: Path) -> MeasuredInput | None:
    """What the latest run of this job file read; a run on AWS before a local one, whose speed is that of CPUs.

    None if no run from this folder has shown it, or the history cannot be read.
    """
    try:
        rates, runs = input_rates(), list(runs_of(job_file))
    except EnvironmentProblem:
        return None
    known = [found for one in runs if (found := _found(one, rates.get(one.job))) is not None]
    return next((one for one in known if not one.is_local), known[0] if known else None)


def _found(run: Launch, rate: InputRate | None) -> MeasuredInput | None:
    """None for values that are no rate: the file may have been edited."""
    if rate is None or not _is_rate(rate.input_mb_s) or rate.input_hosts < 1:
        return None
    channels = {str(name): one for name, one in (rate.input_channels or {}).items() if _is_rate(one)}
    return MeasuredInput(run.job, run.where == LOCAL, rate.input_mb_s, rate.input_hosts, channels)


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
