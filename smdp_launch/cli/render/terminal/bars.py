"""Bars of what is on its way, on standard error, if that is a terminal that may be told to move its cursor."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from smdp_launch.cli.render.terminal.console import Console

_View = TypeVar("_View", bound="TransferBars")


class TransferBars:
    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal or console.color_system is None,
        )

    def __enter__(self: _View) -> _View:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
