from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.run_metrics.run import RunMetrics


@click.command("diagnose")
@options.job_name
@click.option(
    "--log",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read a saved log, such as a CloudWatch export, instead of the log of a job; - is standard input.",
)
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 20 to 30 for the cause, or 0 if only computing limits the speed (docs/reference/exit-codes.md).",
)
@options.region
@options.json_document
def command(name: str | None, log: Path | None, exit_code: bool, region: str | None, as_json: bool) -> int:
    """Show what limits the speed of job NAME (default: the latest): storage, loader, network, a slow worker, or
    computing.

    The job may run or have ended. The command compares the times that each worker reports for the parts of its steps.
    """
    from smdp_launch.cli.render.diagnose import print_diagnosis
    from smdp_launch.diagnosis.report import EXIT_CODES, diagnosis_json
    from smdp_launch.diagnosis.verdict import diagnose

    if log is not None:
        if name is not None or region is not None:
            raise click.UsageError("--log reads a file: give either NAME or --log FILE")
        job, metrics = None, _saved(log)
    else:
        job, metrics = _of_job(name, region)
    verdict = diagnose(metrics)
    if as_json:
        print_document(diagnosis_json(verdict, job))
    else:
        print_diagnosis(verdict, job)
    return EXIT_CODES[verdict.cause] if exit_code else 0


def _of_job(name: str | None, region: str | None) -> tuple[str, RunMetrics]:
    from smdp_launch.api import attach
    from smdp_launch.cli.render.terminal.retries import print_retry

    job = attach(name, region=region)
    job.on_waiting = print_retry
    return job.name, job.metrics()


def _saved(path: Path) -> RunMetrics:
    from smdp_launch.diagnosis.saved_log import FORMS, NoEventsError, read_log
    from smdp_launch.errors import EnvironmentProblem, Refused

    name = "the standard input" if str(path) == "-" else f"the log {path}"
    try:
        with os.fdopen(0, "rb") if str(path) == "-" else path.open("rb") as file:
            return read_log(file)
    except NoEventsError as error:
        raise Refused(f"{name} has no event of a job. `diagnose --log` reads these forms: {FORMS}") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise EnvironmentProblem(f"{name} cannot be read: {reason}") from error
