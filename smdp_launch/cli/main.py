"""The command ``smdp-launch``. A command's module is imported when that command runs: ``--help`` stays quick."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from smdp_launch import __version__
from smdp_launch.cli.shared.groups import Group
from smdp_launch.disk import is_full, why
from smdp_launch.errors import ExitCode, JobFileRefused, Refused, SmdpError
from smdp_launch.private_files import NotPrivate

if TYPE_CHECKING:
    from smdp_launch.diagnostics import Diagnostic

#: Version of the document that stands for an error where ``--json`` asks for one.
_ERROR_VERSION = 1

#: Commands with the line that ``--help`` shows for each.
COMMANDS = {
    "init": "Write a job file for the script in a folder.",
    "validate": "Find every mistake in a job file; --fix corrects those with one right fix.",
    "plan": "Show exactly what a launch would submit. No network, no credentials.",
    "schema": "Print the job file's schema, for editors.",
    "preflight": "Ask AWS what would stand in a launch's way.",
    "launch": "Run a job here (--local) or on SageMaker, and follow it to its end.",
    "scale": "Model how the job scales with hosts, and where more stop to pay.",
    "rehearse": "Try here how a job meets a fault: spot, kill, throttle and others.",
    "follow": "Show a job from its first line to its end.",
    "status": "Tell how far a job is, and how it ended.",
    "logs": "Print the lines of a job's hosts.",
    "list": "List the jobs that were launched from this folder.",
    "stop": "Stop a job.",
    "resume": "Go on from the checkpoints of a job that was cut off.",
    "download": "Fetch the model and output of a job that has ended.",
    "local": "Keep a local cloud up for other tools: up, down, status.",
    "explain": "Tell more about a code such as SMDP301.",
    "image": "Build, push and inspect training images.",
    "catalog": "Show which instances, frameworks and images there are.",
    "completion": "Print the script that completes commands in bash, zsh or fish.",
}


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"smdp_launch.cli.commands.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="smdp-launch")
def smdp_launch() -> None:
    """Train on SageMaker with distributed data parallelism, from one job file.

    \b
    smdp-launch validate job.yaml          what is wrong with it, all at once
    smdp-launch plan job.yaml              what would be submitted
    smdp-launch launch job.yaml --local    the same job on this machine
    """  # noqa: D301 - click reads \b as "leave these lines as they are"


def main() -> NoReturn:
    """Run the command line and leave with the exit code that docs/exit-codes.md states."""
    # Imports make many objects that stay: looking through them again and again takes 6 % of a short command's time.
    gc.set_threshold(50_000)
    try:
        code = smdp_launch.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
        _document(code, error.format_message())
    except SmdpError as error:
        _show(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = ExitCode.INTERRUPTED
        _document(code, "interrupted")
    except BrokenPipeError:
        # The reader has gone (`| head`); nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    except Exception as error:
        code = _show_unforeseen(error)
    gc.freeze()  # what the interpreter collects last is about to go anyway: a third of a short command's time
    sys.exit(int(code or 0))


def _show_unforeseen(error: Exception) -> ExitCode:
    problem = _of_this_machine(error)
    if problem is not None:
        with contextlib.suppress(OSError):
            click.echo(f"smdp-launch: {problem}", err=True)
            _document(ExitCode.ENVIRONMENT, problem)
        # What is left in the buffer cannot be written either, and Python would say so at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ENVIRONMENT
    import traceback

    traceback.print_exception(error)
    click.echo("This is a mistake in smdp-launch, not in your job. Please report it with the lines above.", err=True)
    with contextlib.suppress(OSError):
        _document(ExitCode.BUG, f"a mistake in smdp-launch: {traceback.format_exception_only(error)[-1].strip()}")
    return ExitCode.BUG


def _of_this_machine(error: Exception) -> str | None:
    """In words, if it is a full disk, a working directory that is gone or state that another user may have prepared,
    which can meet any line of ours."""
    if isinstance(error, NotPrivate):
        return str(error)
    if isinstance(error, OSError) and is_full(error):
        path = Path(error.filename) if isinstance(error.filename, str) else _output_file()
        return why(error, path) if path is not None else "disk full: the output cannot be written"
    try:
        os.getcwd()  # noqa: PTH109 - pathlib would make a Path of it first
    except FileNotFoundError:
        return "the current directory does not exist any more; change to another"
    return None


def _output_file() -> Path | None:
    """The file that standard output is redirected to; an error of writing to it has no file name."""
    path = Path("/proc/self/fd/1").resolve()
    return path if path.is_file() else None


def _show(error: SmdpError) -> None:
    from smdp_launch.cli.render.diagnostics import show_diagnostics

    found = error.diagnostics if isinstance(error, JobFileRefused | Refused) else []
    show_diagnostics(found)
    if not isinstance(error, JobFileRefused):
        click.echo(f"smdp-launch: {error}", err=True)
    if not isinstance(error, JobFileRefused) or _speaks_in_lines():  # else the command's own document tells of that
        _document(error.exit_code, str(error), found)


def _document(code: int, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
    """On standard output for whoever asked for JSON, also by a command line that could not be understood."""
    if "--json" not in sys.argv:
        return
    import json

    told = {"message": message, "diagnostics": [one.to_json() for one in diagnostics]}
    document = {"error": _ERROR_VERSION, "exit_code": int(code), **told}
    click.echo(json.dumps(document) if _speaks_in_lines() else json.dumps(document, indent=2, ensure_ascii=False))


def _speaks_in_lines() -> bool:
    """Whether the command's documents are lines, of which an error is the last."""
    return sys.argv[1:2] in (["launch"], ["rehearse"], ["follow"], ["resume"])
