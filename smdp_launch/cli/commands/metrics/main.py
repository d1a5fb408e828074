from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.job import Job
    from smdp_launch.jobs.logs.messages import JobEvent
    from smdp_launch.jobs.service.clients import Clients

_LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:]+):)?(?P<port>\d{1,5})")
#: Seconds after the job's end in which a scraper may still read the last numbers.
_LAST_SCRAPE = 60.0


def _address(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    match = _ADDRESS.fullmatch(value)
    if match is None or int(match["port"]) > 65535:
        raise click.BadParameter(f"{value!r} is no address: write a port, or one such as 127.0.0.1:9464")
    return (match["host"] or _LOOPBACK).strip("[]"), int(match["port"])


@click.command("metrics")
@options.job_name
@click.option("--follow", "-f", is_flag=True, help="Also print new metrics until the job ends.")
@click.option("--openmetrics", is_flag=True, help="Print the current metrics as OpenMetrics text, for Prometheus.")
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    callback=_address,
    help="Serve OpenMetrics text at http://HOST:PORT/metrics until the job ends; HOST is 127.0.0.1 by default.",
)
@options.region
def command(
    name: str | None, follow: bool, openmetrics: bool, listen: tuple[str, int] | None, region: str | None
) -> ExitCode | None:
    """Print the metrics of job NAME (default: the latest), from its first event until now.

    Each event is one line of JSON: the steps and metrics that the script reports, the time of each training phase, and
    the resources of the hosts (docs/how-to/watch/tracking.md). You can write the output of several jobs into one file.
    """
    if sum((follow, openmetrics, listen is not None)) > 1:
        raise click.UsageError("--follow, --openmetrics and --listen exclude each other: give one of them")

    from smdp_launch.api import attach
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.logs.read import read_events
    from smdp_launch.jobs.status.description import describe

    job = attach(name, region=region)
    job.on_waiting = print_retry
    with job.connected() as clients:
        if not follow and listen is None:
            describe(clients, job.name)  # fails for an unknown job, whose log would be empty
            events = read_events(clients, job.name)
            if openmetrics:
                _print_openmetrics(job.name, events)
            else:
                _print_lines(job.name, events)
            return None
        with interrupts_deferred(clients):
            if listen is not None:
                _serve(job, clients, listen)
            else:
                _print_lines(job.name, _followed(clients, job.name))
            return ExitCode.INTERRUPTED if clients.interrupted.is_set() else None


def _print_lines(job: str, events: Iterator[JobEvent]) -> None:
    from smdp_launch.cli.render.json_output import json_text
    from smdp_launch.run_metrics.lines import metrics_line

    for one in events:
        line = metrics_line(job, one.name, one.fields, one.host, one.worker, one.time_ms / 1000)
        click.echo(json_text(line, indent=None))


def _print_openmetrics(job: str, events: Iterator[JobEvent]) -> None:
    from smdp_launch.jobs.run import metrics_of
    from smdp_launch.run_metrics.openmetrics import openmetrics

    click.echo(openmetrics(metrics_of(events), job), nl=False)


def _serve(job: Job, clients: Clients, address: tuple[str, int]) -> None:
    import threading

    from smdp_launch.cli.shared.metrics_server import MetricsServer
    from smdp_launch.jobs.run import add_event
    from smdp_launch.run_metrics.openmetrics import openmetrics
    from smdp_launch.run_metrics.run import RunMetrics

    run, lock = RunMetrics(), threading.Lock()

    def text() -> str:
        with lock:
            return openmetrics(run, job.name)

    server = MetricsServer(address, text)
    with server.serving():
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        click.echo(f"the numbers of {job.name} are at http://{host}:{server.port}/metrics until it ends", err=True)
        for one in _followed(clients, job.name):
            with lock:
                add_event(run, one)
        server.wait_for_scrape(_LAST_SCRAPE, clients.interrupted)


def _followed(clients: Clients, job: str) -> Iterator[JobEvent]:
    """The job's events until it ends, or the user interrupts."""
    from smdp_launch.jobs.follow import Follower
    from smdp_launch.jobs.logs.messages import JobEvent

    for event in Follower(clients, job).events(clients.interrupted.wait):
        if isinstance(event, JobEvent):
            yield event
