from __future__ import annotations

import json
from pathlib import Path

import click

from smdp_launch.cli.shared import options


@click.command("download", short_help="Fetch the model and output of a job.")
@options.job_name
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("smdp-results"),
    show_default=True,
    help="Where the folder NAME is made.",
)
@click.option("--extract", is_flag=True, help="Unpack model.tar.gz to model, output.tar.gz to output.")
@click.option("--no-limits", is_flag=True, help="With --extract: however many bytes and files the archives hold.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@options.region
@click.option("--json", "as_json", is_flag=True, help="What was fetched as one JSON document (docs/json.md).")
def command(
    name: str | None,
    folder: Path,
    extract: bool,
    no_limits: bool,
    force: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Fetch what job NAME (default: `latest`) left in S3 into a folder of its name.

    A file appears whole or not at all. A download that was interrupted goes on where it was when the command is given
    again. --extract refuses an archive of more than 100 GB, 500,000 files and folders, or 100 times its own size, and
    one for which the disk has no room.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.download import DownloadView, as_document, show_download

    if no_limits and not extract:
        raise click.UsageError("--no-limits goes with --extract")
    job = attach(name, region=region)
    with DownloadView() as view:
        try:
            fetched = job.download(folder, extract=extract, force=force, limits=not no_limits, progress=view.show)
        except KeyboardInterrupt:
            click.echo("the same command goes on from here", err=True)
            raise
    if as_json:
        click.echo(json.dumps(as_document(job, fetched), indent=2, ensure_ascii=False))
    else:
        show_download(job, fetched)
