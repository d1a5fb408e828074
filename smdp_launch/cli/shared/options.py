"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click

from smdp_launch.cli.shared.completers import account_codes, deployed_endpoints, job_files, launched_jobs

_AGO = re.compile(r"(?P<amount>\d{1,6})(?P<unit>s|m|h|d)")
_SHARE = re.compile(r"([1-9][0-9]?|100)%")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _time(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    """Parse ``10m`` (ten minutes ago), or an ISO 8601 time, which is local unless it has a time zone."""
    if value is None:
        return None
    ago = _AGO.fullmatch(value)
    if ago is not None:
        return datetime.now(timezone.utc) - timedelta(seconds=int(ago["amount"]) * _SECONDS[ago["unit"]])
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{value!r} is no time: write one such as 10m or 2026-11-21T14:30") from None


def _seconds(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Parse ``2h`` to seconds."""
    if value is None:
        return None
    amount = _AGO.fullmatch(value)
    if amount is None:
        raise click.BadParameter(f"{value!r} is no duration: write one such as 30m, 2h or 1d")
    return int(amount["amount"]) * _SECONDS[amount["unit"]]


def since(help_: str) -> Callable[[Any], Any]:
    return click.option("--since", metavar="TIME", callback=_time, help=help_)


def _check_codes(_: click.Context, __: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    if not values:
        return ()
    from smdp_launch.jobs.preflight.run import CHECKS

    known = [one.code for one in CHECKS]
    for value in values:
        if value.upper() not in known:
            raise click.BadParameter(f"{value!r} is no check of the account: one of {', '.join(known)}")
    return tuple(value.upper() for value in values)


#: A file that cannot be read is a diagnostic, like every other error in it.
job_file = click.argument(
    "job_file",
    metavar="[JOBFILE]",
    type=click.Path(path_type=Path),
    default=Path("job.yaml"),
    shell_complete=job_files,
)

#: Several job files, or none for job.yaml.
several_job_files = click.argument(
    "job_files", metavar="[JOBFILE]...", nargs=-1, type=click.Path(path_type=Path), shell_complete=job_files
)


def _settings_option(example: str) -> Callable[[Any], Any]:
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"Override a key of the job file, such as {example}; may be repeated.",
    )


settings = _settings_option("compute.max_run=3600")
serve_settings = _settings_option("serve.lifetime=7200")

ignore = click.option(
    "--ignore",
    metavar="CODE",
    multiple=True,
    callback=_check_codes,
    shell_complete=account_codes,
    help="Skip the account check with this code, such as SMDP814; may be repeated.",
)

json_document = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON (docs/reference/json.md)."
)

json_events = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print events as JSON, one a line (docs/reference/json.md). Disables questions.",
)

yes = click.option("--yes", "-y", is_flag=True, help="Launch without confirmation.")


def _share(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and _SHARE.fullmatch(value) is None:
        raise click.BadParameter(f"{value!r} is no share: write one from 1% to 100%, such as 80%")
    return value


require_network = click.option(
    "--require-network",
    metavar="SHARE",
    callback=_share,
    help="End the job at its start if a link is slower than this share of its known rate, such as 80%.",
)


def network_settings(required: str | None) -> tuple[str, ...]:
    """The value of ``--require-network`` as one of ``--set``."""
    return () if required is None else (f"network.require={required}",)


detach = click.option("--detach", "-d", is_flag=True, help="Exit after the launch. `follow` shows the job.")

prices = click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Table of prices for the cost (docs/reference/catalog.md). Default: the price at the launch.",
)


def _check_report(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
    """Before the job runs, and not after hours of training."""
    if value is not None:
        from smdp_launch.cli.render.job.report import require_writable

        require_writable(value)
    return value


report = click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=_check_report,
    metavar="FILE.html",
    help="At the end, write a report of the run to this file as an HTML page. Overwrites the file.",
)

sweep_report = click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=_check_report,
    metavar="FILE.html",
    help="Write a report of the sweep until now to this file as an HTML page. Overwrites the file.",
)

job_name = click.argument("name", metavar="[NAME]", required=False, shell_complete=launched_jobs)

region = click.option("--region", metavar="REGION", help="The region of a job that was not launched from this folder.")

endpoint_name = click.argument("name", metavar="[NAME]", required=False, shell_complete=deployed_endpoints)

endpoint_region = click.option(
    "--region", metavar="REGION", help="The region of an endpoint that was not deployed from this folder."
)

ttl = click.option(
    "--ttl",
    metavar="TIME",
    callback=_seconds,
    help="Delete the endpoint after this time, such as 30m, 2h or 1d; overrides serve.lifetime.",
)
