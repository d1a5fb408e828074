"""The confirmation before a launch that costs money."""

from __future__ import annotations

import sys

import click

from smdp_launch.errors import Refused


def confirm(yes: bool, *, ask: bool = True) -> None:
    """Ask on the terminal whether to launch, unless ``yes``.

    Raises:
        Refused: the answer is no, or the command cannot ask: ``ask`` is false, or there is no terminal.
    """
    if yes:
        return
    if not ask or sys.stdin is None or not sys.stdin.isatty():
        raise Refused("a launch on AWS costs money, and there is no terminal to confirm it at: add --yes")
    if not click.confirm("Launch it on AWS?", default=False):
        raise Refused("not launched")
