"""The report of a sweep as an HTML page: one file without scripts and external resources, also for print."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from smdp_launch import __version__
from smdp_launch.cli.render.plots.page import page, section
from smdp_launch.cli.render.plots.page import verdict as box
from smdp_launch.cli.render.plots.run_page import REPORT_STYLE, figure, utc_text
from smdp_launch.cli.render.plots.trial_figures import TRIAL_STYLE, loss_figure, parallel_figure, reasons, trials_table
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.sweeps import SweepState, value_text
from smdp_launch.jobs.trial_curves import LossCurves
from smdp_launch.notebook.html import rows, text
from smdp_launch.units import duration

Row = tuple[str, str]


def sweep_page(sweep: SweepState, progress: str, curves: LossCurves, where: str, now: datetime) -> str:
    """Args:
    progress: how many trials have ended, and the best result.
    where: the AWS region, or ``local``.
    now: when the sweep was read.
    """
    footer = f"Written by smdp-launch {__version__} on {utc_text(now)}. All values are measured."
    sections = "".join(_sections(sweep, progress, curves, where))
    return page(f"{sweep.name}: report", sweep.name, REPORT_STYLE + TRIAL_STYLE, sections, footer)


def _sections(sweep: SweepState, progress: str, curves: LossCurves, where: str) -> Iterator[str]:
    kind = "open"
    if sweep.has_ended:
        kind = "passed" if sweep.status == "Completed" else "failed"
    yield box(kind, sweep.status, progress)
    yield section("Summary", rows(_summary(sweep, where)))
    if not sweep.trials:
        yield section("Trials", "<p>No trial has started.</p>")
        return
    yield section("Trials", trials_table(sweep))
    failed = list(reasons(sweep))
    if failed:
        yield section("Reasons of failures", rows(failed))
    compared = parallel_figure(sweep)
    if compared.svg:
        yield section("Comparison", figure(compared))
    losses = loss_figure(sweep, curves)
    yield section("Losses", figure(losses) if losses.svg else f"<p>{text(losses.caption)}</p>")


def _summary(sweep: SweepState, where: str) -> Iterator[Row]:
    yield "where", "this machine" if where == LOCAL else where
    yield "objective", f"{sweep.goal} {sweep.metric}"
    if sweep.reason:
        yield "reason", sweep.reason
    best = next((one for one in sweep.trials if one.job == sweep.best), None)
    if best is not None:
        yield "best trial", best.job
        yield from ((name, value_text(value)) for name, value in best.values.items())
    seconds = [one.seconds for one in sweep.trials if one.seconds is not None]
    if seconds:
        yield "training", f"{duration(round(sum(seconds)))} of all ended trials together"
