"""TensorBoard: event files, by its own client or by tensorboardX."""

from typing import Any, Callable, List

from .numbers import Report
from .run_settings import in_container, setting
from .sender import NotInstalled, Tracker

_DEFAULT = "/opt/ml/output/tensorboard"


class TensorBoardFiles(Tracker):
    """The folder is SMDP_TRACKING_TENSORBOARD; the platform copies it to S3."""

    name = "tensorboard"

    def __init__(self) -> None:
        self._add: Callable[[str, float, int, float], None] = lambda *_: None
        self._writer: Any = None

    def start(self) -> str:
        folder = in_container(setting("TENSORBOARD") or _DEFAULT)
        try:
            self._use_tensorboard(folder)
        except ImportError:
            try:
                self._use_tensorboardx(folder)
            except ImportError:
                raise NotInstalled(
                    "tensorboard is not installed: add tensorboard to the source folder's requirements.txt"
                ) from None
        return f"event files in {folder}"

    def send(self, reports: List[Report]) -> None:
        for one in reports:
            for name, value in one.values.items():
                self._add(name, value, one.step, one.time)
        self._writer.flush()

    def finish(self, succeeded: bool) -> None:
        del succeeded
        self._writer.close()

    def _use_tensorboard(self, folder: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        writer = self._writer = EventFileWriter(folder)

        def add(name: str, value: float, step: int, time: float) -> None:
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(wall_time=time, step=step, summary=summary))

        self._add = add

    def _use_tensorboardx(self, folder: str) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(folder)
        self._add = self._writer.add_scalar
