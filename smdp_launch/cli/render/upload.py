"""The source archive on its way: a bar on standard error, if that is a terminal and the archive is not small."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from smdp_launch.cli.render.console import Console
from smdp_launch.jobs.upload import PART


class UploadView:
    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}", style="bold"),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal or console.color_system is None,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> UploadView:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def show(self, sent: int, size: int) -> None:
        if size <= PART:  # gone before it could be looked at
            return
        if self._task is None:
            self._task = self._bars.add_task("source", total=size)
        self._bars.update(self._task, completed=sent)
