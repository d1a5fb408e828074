"""The confirmation before a command costs money or deletes something on AWS."""

from __future__ import annotations

import sys

import click

from smdp_launch.errors import Refused


def confirm(
    yes: bool,
    *,
    ask: bool = True,
    question: str = "Launch it on AWS?",
    subject: str = "a launch on AWS costs money",
    refusal: str = "not launched",
) -> None:
    """Ask on the terminal whether to act, unless ``yes``.

    Args:
        subject: why a confirmation is needed, for a command that cannot ask.
        refusal: the message if the answer is no.

    Raises:
        Refused: the answer is no, or the command cannot ask: ``ask`` is false, or there is no terminal.
    """
    if yes:
        return
    if not ask or sys.stdin is None or not sys.stdin.isatty():
        raise Refused(f"{subject}, and there is no terminal to confirm it at: add --yes")
    if not click.confirm(question, default=False):
        raise Refused(refusal)
