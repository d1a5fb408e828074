"""Everything before the first worker: the model's code, its requirements, and a command of the model's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Callable, Mapping

from smdp_entrypoint.contract.errors import ContractError, ProgramError
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.settings import short_repr
from smdp_entrypoint.fetch.source import fetch_source
from smdp_entrypoint.program import pip_command, pip_environment
from smdp_entrypoint.serving.settings import DEFAULT_PROGRAM, ServeSettings

#: In the model's code: a program that serves the model instead of this package.
OWN_COMMAND = "serve"
_KILL_WAIT_S = 5.0

Say = Callable[[str], None]


def code_folder(settings: ServeSettings, tree: MlTree, environ: Mapping[str, str], say: Say) -> Path:
    """The folder with the model's code, fetched if SAGEMAKER_SUBMIT_DIRECTORY names another place. It need not exist.
    Raises EntrypointError."""
    default = tree.model / "code"
    source = settings.source
    if source is None:
        return default
    if not source.startswith(("s3://", "file://")):
        local = tree.locate(source)
        if local.is_dir():
            return local
        if not local.exists():
            if local.resolve() == default.resolve():
                return default
            raise ContractError(f"SAGEMAKER_SUBMIT_DIRECTORY is {short_repr(source)}, and {local} does not exist.")
    try:
        tree.code.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ContractError(f"The folder {tree.code} cannot be created: {error.strerror}.") from error
    fetch_source(source, tree, environ, say)
    return tree.code


def own_command(code: Path) -> Path | None:
    """The model's own program `serve`, if its code has one."""
    path = code / OWN_COMMAND
    return path if path.is_file() and os.access(path, os.X_OK) else None


def find_script(settings: ServeSettings, code: Path) -> Path | None:
    """The script with the model's functions; None for a model without one. Raises ProgramError."""
    name = settings.program
    if name is None:
        default = code / DEFAULT_PROGRAM
        return default if default.is_file() else None
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise ProgramError(
            f"SAGEMAKER_PROGRAM {short_repr(name)} must be a path within the code, such as inference.py."
        )
    script = code / path
    if not script.is_file():
        found = sorted(one.name for one in code.iterdir()) if code.is_dir() else []
        raise ProgramError(
            f"SAGEMAKER_PROGRAM {short_repr(name)} is not in {code}, which contains "
            f"{', '.join(found[:10]) or 'nothing'}. Put the script into the folder code of model.tar.gz."
        )
    return script


def install_requirements(code: Path, environ: Mapping[str, str], say: Say) -> None:
    """Install the code's requirements.txt with pip. Raises ProgramError, and what a stop signal raises."""
    if not (code / "requirements.txt").is_file():
        return
    command = pip_command(["-r", "requirements.txt"])
    say("installing with pip: -r requirements.txt")
    try:
        pip = subprocess.Popen(command, cwd=str(code), env=pip_environment(environ), stdin=subprocess.DEVNULL)
    except OSError as error:
        raise ProgramError(f"{' '.join(command)} cannot be started: {error}.") from error
    try:
        status = pip.wait()
    except BaseException:
        pip.kill()
        pip.wait(_KILL_WAIT_S)
        raise
    if status != 0:
        raise ProgramError(f"pip install -r requirements.txt failed with exit code {status}; the log has its output.")


def worker_environment(code: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the workers, which import modules from the code's folder."""
    package = str(Path(__file__).parents[2])
    path = [str(code), environ.get("PYTHONPATH", ""), package]
    return {**environ, "PYTHONPATH": os.pathsep.join(part for part in path if part)}
