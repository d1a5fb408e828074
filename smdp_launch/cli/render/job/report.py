"""Writes the reports of runs and sweeps."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import click

from smdp_launch.cli.render.job.verdict import verdict_rows
from smdp_launch.cli.render.plots.run_page import html_page
from smdp_launch.cli.render.plots.sweep_page import sweep_page
from smdp_launch.cli.render.sweeps import ended_text
from smdp_launch.draft.user_files import write_file
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.run import Run
from smdp_launch.jobs.sweeps import SweepState
from smdp_launch.jobs.trial_curves import LossCurves


def write_report(run: Run, path: Path) -> None:
    """Write the report as an HTML page, in one step, and print its name. Only its owner may read it.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    _write(html_page(run, verdict_rows(run.metrics), datetime.now(timezone.utc)), path)


def write_sweep_report(sweep: SweepState, curves: LossCurves, where: str, path: Path) -> None:
    """As `write_report`, of a sweep.

    Raises:
        EnvironmentProblem: it cannot be written.
    """
    _write(sweep_page(sweep, ended_text(sweep), curves, where, datetime.now(timezone.utc)), path)


def _write(page: str, path: Path) -> None:
    write_file(path, page, mode=0o600)
    click.echo(f"wrote {path}", err=True)


def require_writable(page: Path) -> None:
    """Check before a job runs whether its report can be written.

    Raises:
        EnvironmentProblem: it cannot.
    """
    if page.exists() and not page.is_file():
        raise EnvironmentProblem(f"{page} exists and is not a regular file: name another for the report")
    if not (os.access(page, os.W_OK) if page.exists() else os.access(page.parent, os.W_OK | os.X_OK)):
        raise EnvironmentProblem(f"{page} cannot be written: {page.parent} does not exist or is not writable")
