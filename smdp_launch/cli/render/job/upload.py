"""The progress of an upload: of the source archive, or of a model."""

from __future__ import annotations

from rich.progress import TaskID

from smdp_launch.cli.render.terminal.bars import TransferBars
from smdp_launch.jobs.transfer.upload import PART


class UploadView(TransferBars):
    def __init__(self, title: str = "source") -> None:
        super().__init__()
        self._title = title
        self._task: TaskID | None = None

    def show(self, sent: int, size: int) -> None:
        if size <= PART:  # too fast for a bar
            return
        if self._task is None:
            self._task = self._bars.add_task(self._title, total=size)
        self._bars.update(self._task, completed=sent)
