"""Runs all checks, and hides in their texts what a bug report must not contain."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from smdp_launch.doctor import aws, machine, python
from smdp_launch.doctor.results import CheckResult, in_order
from smdp_launch.secret_forms import without_forms

#: In this order a cause comes before its consequences.
_CHECKS: tuple[Callable[[], Iterator[CheckResult]], ...] = (
    python.python,
    machine.system,
    machine.clock,
    machine.open_files,
    machine.folders,
    machine.ports,
    python.our_packages,
    python.frameworks,
    machine.resources,
    machine.isolation,
    python.compiler,
)

#: An address: the server may be private, and the user, password, path and query are. Those of AWS are public.
_ADDRESS = re.compile(r"\b(https?://)(?![\w.-]+\.amazonaws\.com/?(?:[\s'\",;]|$))[^\s'\",;]+")


@dataclass(frozen=True)
class Examination:
    """All results: errors first, then warnings."""

    results: tuple[CheckResult, ...]

    @property
    def errors(self) -> list[CheckResult]:
        return [one for one in self.results if one.verdict == "error"]

    @property
    def warnings(self) -> list[CheckResult]:
        return [one for one in self.results if one.verdict == "warning"]

    def without_private_data(self) -> Examination:
        """For a bug report: no names of the user and the machine, no paths below the home folder, no account."""
        return Examination(tuple(_anonymous(one) for one in self.results))


def examine(*, call_aws: bool) -> Examination:
    """Run all checks, which takes as long as two imports of the framework.

    Args:
        call_aws: whether to call AWS.
    """
    results = [one for check in _CHECKS for one in check()]
    return Examination(tuple(in_order([*results, *aws.of(call=call_aws)])))


def _anonymous(result: CheckResult) -> CheckResult:
    return replace(result, found=_hidden(result.found), fix=_hidden(result.fix), command=_hidden(result.command))


@overload
def _hidden(text: str) -> str: ...


@overload
def _hidden(text: str | None) -> str | None: ...


def _hidden(text: str | None) -> str | None:
    if text is None:
        return None
    text = without_forms(_ADDRESS.sub(r"\1***", text))
    for folder in _private_folders():
        text = re.sub(rf"{re.escape(folder)}(?!\.?[\w-])(/[^\s'\",;:]*)?", _shortened, text)
    text = re.sub(r"arn:aws[^\s]*", "arn:***", text)
    text = re.sub(r"(?<!\d)\d{12}(?!\d)", "***", text)
    for name in _private_names():
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "***", text)
    return text


def _shortened(match: re.Match[str]) -> str:
    """The last part of a path is a program or a file of the installation."""
    inner = (match[1] or "").strip("/")
    return f"~/.../{inner.rpartition('/')[2]}" if inner else "~"


def _private_folders() -> list[str]:
    folders = {os.path.expanduser("~"), str(Path.cwd())}  # noqa: PTH111
    folders |= {os.path.realpath(one) for one in folders}
    return sorted((one for one in folders if len(one) > 1), key=len, reverse=True)


def _private_names() -> list[str]:
    names = [socket.gethostname()]
    with suppress(KeyError, OSError):  # a user without an entry
        names.append(getpass.getuser())
    return [one for one in names if len(one) > 1 and one not in ("root", "localhost")]
