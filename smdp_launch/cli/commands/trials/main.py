from __future__ import annotations

from pathlib import Path

import click

from smdp_launch.cli.shared import options


@click.command("trials")
@options.job_name
@options.region
@options.sweep_report
@options.json_document
def command(name: str | None, region: str | None, report: Path | None, as_json: bool) -> None:
    """List the trials of sweep NAME (default: the latest launch), the best first: values, result, status and time.

    A trial is a training job: `logs`, `status` and `download` accept its name.
    """
    from smdp_launch.cli.shared.sweeps import show_sweep, sweep_of
    from smdp_launch.errors import Refused

    launched = sweep_of(name, region)
    if launched is None and (name is None or region is None):
        what = f"{name} is no sweep" if name is not None else "the latest launch is no sweep, or there is none"
        raise Refused(f"{what} of this folder: give the name of one (`smdp-launch list`), or with --region any")
    found = launched.job if launched is not None else str(name)
    where, state = (launched.where, launched.state) if launched is not None else (region, None)
    show_sweep(found, where, state, as_json, report)
