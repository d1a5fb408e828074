"""Streams and events. On the CPU the work is complete when a call returns, so a stream never waits."""

import time
from typing import Any, Dict, Optional, Tuple

from .devices import devices
from .not_emulated import NotEmulated


class Stream:
    """Work runs in program order in any case."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls)

    def __init__(self, device: Any = None, priority: int = 0, **_others: Any) -> None:
        self.device_index = devices.resolve(device)
        self.priority = priority
        self.stream_id = self.cuda_stream = 0

    @property
    def device(self) -> Any:
        return devices.named(self.device_index)

    @classmethod
    def priority_range(cls) -> Tuple[int, int]:
        return (0, 0)

    def wait_event(self, event: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Any:
        devices.streams.append(self)
        return self

    def __exit__(self, *_error: Any) -> None:
        devices.streams.pop()

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.device_index}, emulated on the CPU>"


class Event:
    """A time of the host's clock."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls)

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_others: Any
    ) -> None:
        self._timed = enable_timing
        self._recorded: Optional[float] = None

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: Any) -> Any:
        raise NotEmulated("torch.cuda.Event.from_ipc_handle")

    def ipc_handle(self) -> Any:
        raise NotEmulated("torch.cuda.Event.ipc_handle")

    def record(self, stream: Any = None) -> None:
        self._recorded = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: Any) -> float:
        """The time between the two events in milliseconds.

        Raises:
            ValueError: one of the two was not recorded, or was created without ``enable_timing=True``, as with CUDA.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._recorded is None or end_event._recorded is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(end_event._recorded - self._recorded) * 1e3


class StreamContext:
    """``with torch.cuda.stream(stream)``; None changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


_defaults: Dict[int, Stream] = {}


def default_stream(device: Any = None) -> Stream:
    index = devices.resolve(device)
    return _defaults.setdefault(index, Stream(index))


def current_stream(device: Any = None) -> Stream:
    index = devices.resolve(device)
    inner = (stream for stream in reversed(devices.streams) if stream.device_index == index)
    return next(inner, None) or default_stream(index)


def set_stream(stream: Any) -> None:
    if stream is not None:
        devices.streams[:] = [stream]
