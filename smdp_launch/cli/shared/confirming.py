"""The question before something costs money."""

from __future__ import annotations

import sys

import click

from smdp_launch.errors import Refused


def confirm(yes: bool, *, ask: bool = True) -> None:
    """Ask, unless ``yes``; nobody, without ``ask``.

    Raises:
        Refused: the answer is no, or nobody is here to ask.
    """
    if yes:
        return
    if not ask or sys.stdin is None or not sys.stdin.isatty():
        raise Refused("a launch costs money and nobody is here to ask: add --yes")
    if not click.confirm("Launch it on AWS?", default=False):
        raise Refused("not launched")
