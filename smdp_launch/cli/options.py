"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

#: Whether the file can be read is told as a diagnostic, like everything else about it.
job_file = click.argument("job_file", metavar="[JOBFILE]", type=click.Path(path_type=Path), default=Path("job.yaml"))
