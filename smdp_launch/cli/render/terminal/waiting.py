"""That a question is asked again, on standard error: standard output holds the answer alone."""

from __future__ import annotations

import click

from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.plain_text import without_controls


def show_waiting(waiting: Waiting) -> None:
    told = without_controls(f"{waiting.what}: {waiting.reason}; asking again in {waiting.again_in:.1f} s")
    click.echo(told, err=True)
