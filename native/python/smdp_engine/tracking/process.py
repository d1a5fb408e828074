"""The tracking process: reads event lines from standard input until its end, and sends their numbers to the trackers.

It prints nothing but lines of its own, on standard error: the output of the trackers' clients may contain keys.
"""

import os
import re
import signal
import sys
import threading
import time
from typing import Callable, List, TextIO

from .mlflow_run import MlflowRun
from .numbers import Numbers
from .reports import EXIT, TRACKERS, exit_seconds
from .sender import Sender, Tracker
from .tensorboard_files import TensorBoardFiles
from .wandb_run import WandbRun

_CLASSES = {"tensorboard": TensorBoardFiles, "mlflow": MlflowRun, "wandb": WandbRun}
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_PASSWORD_IN_ADDRESS = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/@]+@")
_SHORTEST_SECRET = 6


def main() -> None:
    """Run until standard input ends, then at most SMDP_TRACKING_EXIT_S seconds."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # the end of the script is the end of standard input
    say = _printer(_only_own_lines())
    senders = [Sender(tracker, _about(tracker, say)) for tracker in _trackers(say)]
    for sender in senders:
        sender.begin()
    _read(senders, say)
    until = time.monotonic() + exit_seconds()
    timer = threading.Timer(exit_seconds() + 0.5, os._exit, (1,))
    timer.daemon = True
    timer.start()
    for sender in senders:
        sender.join(until - time.monotonic())
    sys.stderr.flush()
    os._exit(0)  # a client's own end could take longer than the seconds that there are


def _read(senders: List[Sender], say: Callable[[str], None]) -> None:
    numbers, succeeded = Numbers(say), False
    for raw in sys.stdin.buffer:
        line = raw.decode(errors="replace").strip()
        if line.startswith(EXIT):
            succeeded = line == f"{EXIT}0"
            break
        report = numbers.read(line)
        if report is not None:
            for sender in senders:
                sender.put(report)
    for sender in senders:
        sender.close(succeeded)


def _trackers(say: Callable[[str], None]) -> List[Tracker]:
    names = [one.strip() for one in os.environ.get(TRACKERS, "").split(",") if one.strip()]
    for name in names:
        if name not in _CLASSES:
            say(f"{name[:50]!r} in {TRACKERS} is no tracker: use {', '.join(_CLASSES)}")
    return [_CLASSES[name]() for name in dict.fromkeys(names) if name in _CLASSES]


def _about(tracker: Tracker, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: say(f"{tracker.name}: {text}")


def _only_own_lines() -> TextIO:
    """Standard error for lines of this module; the clients' output goes nowhere."""
    own = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return own


def _printer(file: TextIO) -> Callable[[str], None]:
    lock = threading.Lock()

    def say(text: str) -> None:
        with lock:
            try:
                file.write(f"smdp: tracking: {without_secrets(text)}\n")
                file.flush()
            except (OSError, ValueError):
                return

    return say


def without_secrets(text: str) -> str:
    """The text with stars in place of passwords in addresses, and of the values of variables with a secret's name."""
    text = _PASSWORD_IN_ADDRESS.sub(r"\1***@", text)
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return text
