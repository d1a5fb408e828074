"""Retries of a call, on standard error: standard output holds only the result."""

from __future__ import annotations

import click

from smdp_launch.jobs.service.error_kinds import RENEW_CREDENTIALS, ErrorKind
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.plain_text import without_controls


def print_retry(waiting: Waiting) -> None:
    message = f"{waiting.what}: {waiting.reason}; retrying in {waiting.again_in:.1f} s"
    if waiting.error_kind is ErrorKind.CREDENTIALS:
        message += f"; {RENEW_CREDENTIALS}"
    click.echo(without_controls(message), err=True)
