"""`serve`: the command that the platform starts in the container of an endpoint or of a batch transform."""

from __future__ import annotations

import os
import select
import socket
import sys
import traceback
from pathlib import Path
from typing import Mapping, Sequence

from smdp_entrypoint import __version__
from smdp_entrypoint.contract.devices import count_devices
from smdp_entrypoint.contract.errors import EntrypointError, ProgramError, StopRequested
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.signals import Signals
from smdp_entrypoint.serving import preparation
from smdp_entrypoint.serving.frontend import Frontend
from smdp_entrypoint.serving.pool import Launch, Pool
from smdp_entrypoint.serving.settings import ServeSettings

_USAGE = "usage: serve [--version]\nAnswers inference requests on port 8080 with the model in /opt/ml/model."
_TICK_S = 0.1
_LONGEST_REASON = 1024  # characters of a failure that the platform shows


def main(argv: Sequence[str] | None = None) -> int:
    """Return the container's exit code: 0 after a stop signal, 1 for a model that cannot be served."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    console = Console(host=socket.gethostname())
    if arguments in (["--version"], ["--help"], ["-h"]):
        console.write(_USAGE if "h" in arguments[0] else f"smdp-entrypoint {__version__}")
        return 0
    # The platform appends the word `serve` to an image's own entry point.
    if arguments not in ([], ["serve"]):
        console.say(f"ignoring the arguments: {' '.join(arguments)}")
    code = _Run(console, os.environ).code()
    console.drain()
    return code


class _Run:
    def __init__(self, console: Console, environ: Mapping[str, str]) -> None:
        self.console = console
        self.environ = environ
        self.signals = Signals()
        self.tree = MlTree.from_environment(environ)

    def code(self) -> int:
        try:
            self.signals.install()
            settings, launch = self._prepare()
            self.signals.defer()
            return self._serve(settings, launch)
        except StopRequested as stop:
            self.signals.defer()
            self.console.say("stopped before the model was served")
            return 128 + stop.signum
        except EntrypointError as error:
            self.signals.defer()
            return self._fail(str(error))
        except Exception:  # a bug in this package, reported as one
            self.signals.defer()
            text = traceback.format_exc()
            self.console.say(f"internal error in smdp-entrypoint {__version__}, please report it:\n{text}")
            return self._fail(text.rstrip().rpartition("\n")[2])

    def _prepare(self) -> tuple[ServeSettings, Launch]:
        gpus = count_devices(self.console.say).gpus
        settings = ServeSettings.from_environment(self.environ, gpus)
        code = preparation.code_folder(settings, self.tree, self.environ, self.console.say)
        own = preparation.own_command(code)
        if own is not None:
            self._replace(own)
        script = preparation.find_script(settings, code)
        preparation.install_requirements(code, self.environ, self.console.say)
        environ = preparation.worker_environment(code, self.environ)
        return settings, Launch(script, code, self.tree.model, settings.accept, gpus, environ)

    def _replace(self, command: Path) -> None:
        """Continue as the model's own command."""
        self.console.say(f"running {command}")
        self.console.drain()
        try:
            os.chdir(command.parent)
            os.execve(str(command), [str(command)], dict(self.environ))  # noqa: S606 (no shell wanted)
        except OSError as error:
            raise ProgramError(f"{command} cannot be executed: {error.strerror}. Does it begin with #!?") from error

    def _serve(self, settings: ServeSettings, launch: Launch) -> int:
        pool = Pool(launch, settings.workers, settings.queue, self.console.say)
        try:
            frontend = Frontend(
                (settings.address, settings.port),
                settings.token,
                lambda request: pool.answer(request, settings.timeout),
                lambda: pool.is_ready,
            )
        except OSError as error:
            place = f"{settings.address}:{settings.port}"
            return self._fail(
                f"The port {place} cannot be opened: {error.strerror}. SAGEMAKER_BIND_TO_PORT sets another."
            )
        name = launch.script.name if launch.script is not None else "the model without a script"
        self.console.say(f"serving {name} with {settings.workers} worker(s) on port {settings.port}")
        frontend.start()
        try:
            reason = self._watch(pool)
            if reason:
                return self._fail(reason)
            self.console.say("stopping: answering the requests in progress")
            if not frontend.drain(settings.stop_budget):
                self.console.say(f"some requests were not answered within {settings.stop_budget:g} s")
            return 0
        finally:
            pool.stop()

    def _watch(self, pool: Pool) -> str:
        """Keep the workers running until a stop signal; the reason why they cannot run, or an empty text."""
        announced = False
        while not self.signals.stops:
            reason = pool.maintain()
            if reason:
                return reason
            if pool.is_ready and not announced:
                announced = True
                self.console.say("ready")
            select.select([self.signals.wakeup], [], [], _TICK_S)
            self.signals.arrived()
            self.console.flush()
        return ""

    def _fail(self, reason: str) -> int:
        self.console.say(f"failed: {reason}")
        try:
            self.tree.failure.parent.mkdir(parents=True, exist_ok=True)
            self.tree.failure.write_text(reason[:_LONGEST_REASON], encoding="utf-8", errors="replace")
        except OSError as error:
            self.console.say(f"{self.tree.failure} cannot be written: {error.strerror}")
        return 1
