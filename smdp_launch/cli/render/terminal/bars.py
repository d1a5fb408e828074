"""Progress on standard error, if that is a terminal with cursor control."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

_View = TypeVar("_View", bound="TransferBars")

#: Seconds after which a user wants to see progress.
QUIET = 2.0


def progress_on_stderr(*columns: ProgressColumn, expand: bool = False) -> Progress:
    """A progress display that disappears when it ends."""
    from rich.progress import Progress

    from smdp_launch.cli.render.terminal.console import Console

    console = Console(stderr=True, highlight=False)
    is_disabled = not console.is_terminal or console.color_system is None
    return Progress(*columns, console=console, transient=True, expand=expand, disable=is_disabled)


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show a spinner with ``text`` while the block runs, if that takes longer than `QUIET`."""
    if not sys.stderr.isatty():
        yield
        return
    started: list[Progress] = []

    def start() -> None:
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        progress = progress_on_stderr(
            SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        )
        progress.add_task(text)
        started.append(progress)
        progress.start()

    timer = threading.Timer(QUIET, start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for progress in started:
            progress.stop()


class TransferBars:
    """A bar for each upload or download."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

        self._bars = progress_on_stderr(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TimeRemainingColumn(),
            expand=True,
        )

    def __enter__(self: _View) -> _View:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
