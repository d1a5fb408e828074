from __future__ import annotations

from pathlib import Path

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options


@click.command("download")
@options.job_name
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("smdp-results"),
    show_default=True,
    help="Download into the folder NAME within this folder.",
)
@click.option("--extract", is_flag=True, help="Extract model.tar.gz to model/ and output.tar.gz to output/.")
@click.option("--no-limits", is_flag=True, help="With --extract: accept archives of any size.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@options.region
@options.json_document
def command(
    name: str | None,
    folder: Path,
    extract: bool,
    no_limits: bool,
    force: bool,
    region: str | None,
    as_json: bool,
) -> None:
    """Download the model and the output of job NAME (default: the latest) into a folder with its name.

    A file appears in the folder only when its download is complete. After an interruption, run the same command again
    to resume the download.

    --extract refuses an archive if its content does not fit on the disk, or is larger than 100 GB or than 100 times the
    archive. It also refuses an archive with more than 500,000 files and folders.
    """
    from smdp_launch.api import attach
    from smdp_launch.cli.render.job.download import DownloadView, download_json, print_download
    from smdp_launch.cli.shared.follow_session import sigterm_as_sigint

    if no_limits and not extract:
        raise click.UsageError("--no-limits requires --extract")
    job = attach(name, region=region)
    with sigterm_as_sigint(), DownloadView() as view:
        try:
            download = job.download(folder, extract=extract, force=force, limits=not no_limits, progress=view.show)
        except KeyboardInterrupt:
            click.echo("run the same command again to resume the download", err=True)
            raise
    if as_json:
        print_document(download_json(job, download))
    else:
        print_download(job, download)
