"""`train`: the command that the platform starts in the container."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from typing import Sequence

from smdp_entrypoint import __version__
from smdp_entrypoint.console import Console
from smdp_entrypoint.errors import EntrypointError, StopRequested
from smdp_entrypoint.failure import signal_name
from smdp_entrypoint.paths import MlTree
from smdp_entrypoint.preparation import prepare
from smdp_entrypoint.signals import Signals
from smdp_entrypoint.training import Training, record_failure

_USAGE = "usage: train [--version]\nRuns the training job that the files below /opt/ml/input/config describe."


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the container's exit code: 0, the first failed worker's, 128 + N for signal N, or 1 for a failure before
    any worker ran."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    console = Console(host=socket.gethostname())
    if arguments in (["--version"], ["--help"], ["-h"]):
        console.write(_USAGE if "h" in arguments[0] else f"smdp-entrypoint {__version__}")
        return 0
    # The platform appends the word `train` to an image's own entry point.
    if arguments not in ([], ["train"]):
        console.say(f"arguments are not used: {' '.join(arguments)}")
    code = _train(console)
    console.drain()
    return code


def _train(console: Console) -> int:
    signals = Signals()
    tree = MlTree.from_environment(os.environ)
    try:
        signals.install()
        job = prepare(tree, os.environ, console, signals)
        signals.only_note()
        return Training(job, tree, console, signals).run()
    except StopRequested as stop:
        signals.only_note()
        console.say(f"{signal_name(stop.signum)} received before any worker was started: ending")
        return 128 + stop.signum
    except EntrypointError as error:
        signals.only_note()
        console.say(f"failed: {error}")
        record_failure(tree.failure, f"{error} (on {console.host})", console)
        return 1
    except Exception:  # a bug of ours, to be told as such
        signals.only_note()
        text = traceback.format_exc()
        console.say(f"a bug in smdp-entrypoint {__version__}, please report it:\n{text}")
        last = text.rstrip().rpartition("\n")[2]
        record_failure(tree.failure, f"{last} (a bug in smdp-entrypoint {__version__})\n{text}", console)
        return 1
