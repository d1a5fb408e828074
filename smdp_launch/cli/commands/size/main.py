from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.checking import check

if TYPE_CHECKING:
    from smdp_launch.catalog.prices import PriceTable
    from smdp_launch.sizing.need import Need

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?(?:e\d{1,2})?) ?(?P<unit>[kKMGTP]?)B?")
_UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_MOST = 1e18


def _bytes(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Parse ``150MB``, ``1.2TB`` or a number of bytes; decimal units."""
    if value is None:
        return None
    match = _SIZE.fullmatch(value)
    number = float(match["number"]) * _UNITS[match["unit"]] if match is not None else 0.0
    if not 0 < number <= _MOST:
        raise click.BadParameter(f"{value!r} is no size: write one such as 150MB or 1.2TB")
    return number


class _Given(NamedTuple):
    """Options that describe the need."""

    rate: float | None
    samples: float | None
    sample: float | None
    data: float | None
    object_: float | None
    hosts: int | None


@click.command("size")
@click.argument("job", metavar="[NAME|JOBFILE]", required=False)
@click.option(
    "--bytes-per-second",
    metavar="SIZE",
    callback=_bytes,
    help="Bytes that all hosts read together in a second, such as 1.5GB.",
)
@click.option(
    "--samples-per-second",
    metavar="N",
    type=click.FloatRange(0, 1e12, min_open=True),
    help="Samples that all hosts process together in a second.",
)
@click.option("--sample-bytes", metavar="SIZE", callback=_bytes, help="Mean size of a sample, such as 110kB.")
@click.option("--data-size", metavar="SIZE", callback=_bytes, help="Size of all data, such as 1.2TB.")
@click.option("--object-size", metavar="SIZE", callback=_bytes, help="Mean size of an object in S3, such as 150MB.")
@click.option(
    "--hosts",
    metavar="N",
    type=click.IntRange(1, 1000),
    help="Number of hosts. Default: the number in the job file, or 1.",
)
@click.option("--efa", is_flag=True, help="Show only FSx file systems with EFA.")
@click.option(
    "--prices",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A price table (docs/reference/catalog.md), for the cost of FSx.",
)
@options.region
@options.json_document
def command(
    job: str | None,
    bytes_per_second: float | None,
    samples_per_second: float | None,
    sample_bytes: float | None,
    data_size: float | None,
    object_size: float | None,
    hosts: int | None,
    efa: bool,
    prices: Path | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Show which storage delivers data as fast as a job reads the data, and what limits each other kind of storage.

    The command uses the rate at which the workers of job NAME (default: the latest) would not wait for input. For a
    JOBFILE, it uses the rate of the latest run of this job file. To set another rate, use --bytes-per-second, or
    --samples-per-second with --sample-bytes.
    """
    from smdp_launch.catalog.prices import read_prices
    from smdp_launch.cli.render.size import print_sizing
    from smdp_launch.sizing.choices import choices
    from smdp_launch.sizing.report import sizing_json

    given = _Given(bytes_per_second, samples_per_second, sample_bytes, data_size, object_size, hosts)
    if samples_per_second is not None and not math.isfinite(samples_per_second):
        raise click.UsageError("--samples-per-second must be a finite number")
    if (samples_per_second is None) != (sample_bytes is None):
        raise click.UsageError("--samples-per-second and --sample-bytes belong together")
    table = read_prices(prices) if prices is not None else None
    need, in_region = _need(job, given, region)
    found = choices(need, efa=efa, prices=_storage_prices(table, region or in_region))
    if as_json:
        print_document(sizing_json(need, found))
        return
    priced = table is not None and any(one.monthly_usd is not None for one in found)
    print_sizing(need, found, f"{table.source}, {table.date}" if table is not None and priced else None)


def _storage_prices(table: PriceTable | None, region: str | None) -> dict[str, float]:
    """Of the region; of the table's only region if none is known."""
    if table is None:
        return {}
    if region is None and len(table.storage) == 1:
        region = next(iter(table.storage))
    return dict(table.storage.get(region or "", {}))


def _need(job: str | None, given: _Given, region: str | None) -> tuple[Need, str | None]:
    """The need, and the region of the job."""
    from smdp_launch.sizing.need import Need

    data = given.data / 1e9 if given.data is not None else None
    object_ = given.object_ / 1e6 if given.object_ is not None else None
    if given.rate is not None or (given.samples is not None and given.sample is not None):
        rate = given.rate if given.rate is not None else (given.samples or 0.0) * (given.sample or 0.0)
        hosts, where = given.hosts, region
        if job is not None:
            job_hosts, where = _of_job_file(Path(job))
            hosts = hosts or job_hosts
        return Need(rate / 1e6, hosts or 1, "as given", data, object_), where
    measured, hosts, source, where = _measured(job, region)
    # More hosts of the same speed read proportionally more.
    asked = given.hosts or hosts
    text = source if asked == hosts else f"{source} on {hosts} hosts, scaled to {asked}"
    return Need(measured * asked / hosts, asked, text, data, object_), where


def _of_job_file(path: Path) -> tuple[int, str | None]:
    if not path.is_file():
        raise click.UsageError(f"{path} is no job file; a job's name needs no --bytes-per-second")
    spec, _ = check(path, settings=()).require()
    return spec.compute.instance_count, spec.region


def _measured(job: str | None, region: str | None) -> tuple[float, int, str, str | None]:
    """MB/s that a run read, its hosts, where that is from, and its region."""
    from smdp_launch.api import attach
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.errors import Refused
    from smdp_launch.jobs.input_record import FEW_WINDOWS
    from smdp_launch.jobs.records.history import LOCAL, runs_of
    from smdp_launch.sizing.measured import measured_mb_s
    from smdp_launch.units import count

    if job is not None and Path(job).is_file():
        latest = next(runs_of(Path(job)), None)
        if latest is None:
            raise Refused(f"{job} has no run in this folder: give --bytes-per-second, or launch it once")
        job = latest.job
    attached = attach(job, region=region)
    attached.on_waiting = print_retry
    verdict = attached.diagnose()
    rate = measured_mb_s(verdict)
    if rate is None:
        reason = verdict.missing[0] if verdict.missing else "Its loader reported no bytes."
        raise Refused(f"{attached.name} does not show what it reads: {reason} Give --bytes-per-second instead")
    hosts = len({one.host for one in verdict.workers})
    where = ", a local run at the speed of CPUs" if attached.where == LOCAL else ""
    few = f", in only {count(verdict.windows, 'interval')} of a worker" if verdict.windows < FEW_WINDOWS else ""
    lost = f", without {count(len(verdict.silent), 'worker')} that sent no times" if verdict.silent else ""
    return rate, hosts, f"measured in {attached.name}{where}{few}{lost}", attached.region
