"""The job's program: its kind, its requirements and its command line."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.contract.settings import short_repr

# The kernel reads no more of the line that names the interpreter (BINPRM_BUF_SIZE).
_LONGEST_INTERPRETER_LINE = 256
_MODULE = re.compile(r"[A-Za-z_]\w*([./][A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Program:
    """`kind` is "script" (a .py file), "package" (installed, then run as a module) or "command" (anything else)."""

    kind: str
    name: str
    code: Path

    def argv(self, arguments: list[str]) -> list[str]:
        """The command to execute in the code folder. No shell reads the arguments."""
        if self.kind == "script":
            return [sys.executable, self.name, *arguments]
        if self.kind == "package":
            return [sys.executable, "-m", _module_name(self.name), *arguments]
        return [*self._interpreter(), f"./{self.name}", *arguments]

    def requirements(self) -> list[str]:
        """Arguments for `pip install`; none for a command, as under the AWS toolkit."""
        requirements = ["."] if self.kind == "package" else []
        if self.kind != "command" and (self.code / "requirements.txt").is_file():
            requirements += ["-r", "requirements.txt"]
        return requirements

    def prepare(self) -> None:
        if self.kind == "command":
            path = self.code / self.name
            try:
                path.chmod(path.stat().st_mode | 0o111)
            except OSError as error:
                raise ProgramError(f"{path} cannot be made executable: {error.strerror}.") from error
            self._check_interpreter()

    def _interpreter(self) -> list[str]:
        # The kernel starts only binaries and files that name an interpreter; /bin/sh reads any other file.
        return [] if self._first_line().startswith((b"#!", b"\x7fELF")) else ["/bin/sh"]

    def _check_interpreter(self) -> None:
        """The kernel's own error for an absent interpreter is that of an absent program."""
        line = self._first_line()
        if not line.startswith(b"\x7fELF") and line.endswith((b"\r", b"\r\n")):
            raise ProgramError(f"{self.name} has Windows line ends: save it with the line ends of Linux (LF).")
        words = line[2:].split()
        if not line.startswith(b"#!") or not words:
            return
        interpreter = os.fsdecode(words[0])
        if not os.path.exists(self.code / interpreter):  # noqa: PTH110 (Path.exists raises PermissionError)
            raise ProgramError(f"{self.name} names the interpreter {interpreter}, which this image does not have.")

    def _first_line(self) -> bytes:
        with (self.code / self.name).open("rb") as file:
            return file.readline(_LONGEST_INTERPRETER_LINE)


def find_program(name: str | None, code: Path) -> Program:
    """Raises ProgramError unless `name` is a program within the code folder."""
    if not name:
        raise ProgramError("The job names no program. Set the hyperparameter sagemaker_program, for example train.py.")
    _check_form(name)
    kind = _kind(name, code)
    if kind != "package":
        _check_place(name, code)
    elif not _MODULE.fullmatch(name[:-3] if name.endswith(".py") else name):
        raise ProgramError(
            f"sagemaker_program {name!r} is not a module of the package in {code}. Name a module, for example train."
        )
    return Program(kind, name, code)


def _kind(name: str, code: Path) -> str:
    if name.endswith(".sh"):
        return "command"
    if (code / "setup.py").is_file():
        return "package"
    if name.endswith(".py"):
        return "script"
    # A pyproject.toml may only configure a linter, so a file with the program's name takes precedence.
    return "package" if (code / "pyproject.toml").is_file() and not (code / name).is_file() else "command"


def _check_form(name: str) -> None:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("-") or not name.isprintable():
        raise ProgramError(
            f"sagemaker_program {short_repr(name)} must be a path within the source folder, without '..' and without "
            "'-' at its start, for example train.py."
        )


def _check_place(name: str, code: Path) -> None:
    try:
        target = (code / name).resolve()
        is_file = target.is_file()
    except (OSError, RuntimeError) as error:  # too long, or a loop of links
        raise ProgramError(
            f"sagemaker_program {short_repr(name)} is not a file in {code}: {_reason(error)}."
        ) from error
    if code.resolve() not in target.parents:
        raise ProgramError(f"sagemaker_program {name!r} is a link to {target}, which is outside {code}.")
    if not is_file:
        raise ProgramError(f"sagemaker_program {name!r} is not in {code}, which contains {_listing(code)}.")


def _reason(error: OSError | RuntimeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "its links form a loop"


def _listing(code: Path) -> str:
    names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in code.iterdir())
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(names[:10]) or "nothing") + more


def _module_name(name: str) -> str:
    return (name[:-3] if name.endswith(".py") else name).replace("/", ".")


def pip_command(requirements: list[str]) -> list[str]:
    return [sys.executable, "-m", "pip", "install", *requirements]


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """pip without prompts and without advice that does not apply in a container; the job's own settings override it."""
    defaults = {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    return {**defaults, **environ}
