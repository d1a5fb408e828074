"""`train`: the command that the platform starts in the container."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from typing import Sequence

from smdp_entrypoint import __version__
from smdp_entrypoint.contract.errors import EntrypointError, OthersFailed, StopRequested
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.preparation import needs_token, prepare
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.failure import LONGEST_FILE, signal_name
from smdp_entrypoint.processes.failure_file import FailureFile
from smdp_entrypoint.processes.signals import Signals
from smdp_entrypoint.training import Training, record_failure

_USAGE = "usage: train [--version]\nRuns the training job that the files below /opt/ml/input/config describe."
# After a failure before any worker starts, this host waits for hosts that are still starting, to report it to them.
_REPORT_TIMEOUT_S = 5.0
# A first host whose script exits early waits this long for hosts that have not connected yet.
_CONNECT_TIMEOUT_S = 1.0
# It waits longer if they need the token that it has generated: without the token they cannot start.
_TOKEN_TIMEOUT_S = 20.0


def main(argv: Sequence[str] | None = None) -> int:
    """Return the container's exit code: 0, the first failed worker's, 128 + N for signal N, or 1 for a failure before
    any worker starts."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    console = Console(host=socket.gethostname())
    if arguments in (["--version"], ["--help"], ["-h"]):
        console.write(_USAGE if "h" in arguments[0] else f"smdp-entrypoint {__version__}")
        return 0
    # The platform appends the word `train` to an image's own entry point.
    if arguments not in ([], ["train"]):
        console.say(f"ignoring the arguments: {' '.join(arguments)}")
    code = _Run(console).code()
    console.drain()
    return code


class _Run:
    """One job on this host, from the first file read to the exit code."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.signals = Signals()
        self.peers = Peers()
        self.tree = MlTree.from_environment(os.environ)
        self.file = FailureFile(self.tree.failure)

    def code(self) -> int:
        try:
            self.signals.install()
            self.file.reserve_room()
            job = prepare(self.tree, os.environ, self.console, self.signals, self.peers)
            self.signals.defer()
            if job is None:
                self.peers.leave(_CONNECT_TIMEOUT_S)
                return 0
            code = Training(job, self.tree, self.file, self.console, self.signals, self.peers).run()
            self.peers.leave(self._last_wait(code))
            return code
        except StopRequested as stop:
            self.signals.defer()
            self.peers.leave()
            self.console.say(f"{signal_name(stop.signum)} received before any worker started: exiting")
            return 128 + stop.signum
        except OthersFailed:
            self.signals.defer()
            return self._end_for_others()
        except EntrypointError as error:
            self.signals.defer()
            self.console.say(f"failed: {error}")
            return self._fail(str(error), f"{error} (on {self.console.host})")
        except Exception:  # a bug in this package, reported as one
            self.signals.defer()
            text = traceback.format_exc()
            self.console.say(f"internal error in smdp-entrypoint {__version__}, please report it:\n{text}")
            last = text.rstrip().rpartition("\n")[2]
            return self._fail(last, f"{last} (internal error in smdp-entrypoint {__version__})\n{text}")

    def _last_wait(self, code: int) -> float:
        """Seconds to wait for hosts that have not connected yet, after the script has exited."""
        waits = code == 0 and not self.signals.stops and needs_token(os.environ)
        return _TOKEN_TIMEOUT_S if waits else _CONNECT_TIMEOUT_S

    def _fail(self, error: str, text: str) -> int:
        now = time.time()
        self.console.event("host_failed", time=now, error=error[:LONGEST_FILE])
        record_failure(self.file, text, self.console)
        self.peers.report(Report(self.console.host, now, 1, 1, text.partition("\n")[0]))
        verdict = self.peers.verdict_within()
        if verdict is not None and verdict.host != self.console.host:
            self.console.say(f"the job's first failure: {verdict.summary}")
            record_failure(self.file, f"{verdict.summary}\n{text}", self.console)
        self.peers.leave(_REPORT_TIMEOUT_S)
        return 1

    def _end_for_others(self) -> int:
        self.peers.report(None)
        verdict = self.peers.verdict_within()
        self.peers.leave()
        if verdict is None:  # for mypy: OthersFailed implies a verdict
            return 1
        self.console.say(f"exiting before any worker started; the job's first failure: {verdict.summary}")
        record_failure(self.file, verdict.summary, self.console)
        return verdict.code
