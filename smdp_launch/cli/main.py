"""The command ``smdp-launch``. It imports a command's module only when that command runs, so ``--help`` is fast."""

from __future__ import annotations

import codecs
import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from smdp_launch import __version__
from smdp_launch.cli.shared.groups import Group
from smdp_launch.cli.shared.help import MOST_COLUMNS, with_help_layout
from smdp_launch.cli.shared.streams import continue_without_stderr, discard, has_reader, is_closed_pipe
from smdp_launch.disk import is_full, why
from smdp_launch.errors import ExitCode, JobFileRefused, Refused, SmdpError
from smdp_launch.jobs.records.current_folder import DELETED, is_deleted
from smdp_launch.private_files import NotPrivate

if TYPE_CHECKING:
    from smdp_launch.diagnostics import Diagnostic

#: Version of the JSON object that reports an error where ``--json`` is given.
_ERROR_VERSION = 1
#: The commands that only print: what they print is all that they do, and a reader may need only its start. The others
#: act, or their exit code is a result.
_ONLY_PRINT = frozenset(
    {
        *("plan", "export", "schema", "explain", "catalog", "scale", "size", "status", "trials", "logs", "metrics"),
        *("compare", "list", "cost", "endpoints", "completion"),
    }
)


class Entry(NamedTuple):
    """A command as ``--help`` lists it, with the page of its documentation."""

    section: str
    summary: str
    page: str


_START, _RUN, _WATCH, _AFTER, _SERVE, _TOOLS = "Start", "Run", "Watch", "Finish", "Serve", "Tools"
_SERVING = "docs/how-to/serving/endpoints.md"

COMMANDS = {
    "init": Entry(_START, "Write a job file for a training script.", "docs/how-to/source.md"),
    "validate": Entry(_START, "Report all errors in a job file; with --fix, fix them.", "docs/reference/job-file.md"),
    "plan": Entry(_START, "Show the request that a launch would send.", "docs/reference/plan.md"),
    "export": Entry(
        _START, "Convert a job into a step of SageMaker Pipelines or Airflow.", "docs/how-to/ci/pipelines.md"
    ),
    "schema": Entry(_START, "Print the JSON Schema of job files, for editors.", "docs/how-to/ci/editors.md"),
    "explain": Entry(_START, "Explain a diagnostic code such as SMDP301.", "docs/reference/errors.md"),
    "catalog": Entry(_START, "List instance types, framework versions and images.", "docs/reference/catalog.md"),
    "preflight": Entry(_RUN, "Check your AWS account before a launch.", "docs/how-to/preflight.md"),
    "launch": Entry(
        _RUN, "Run a job on SageMaker, or locally with --local.", "docs/how-to/jobs.md, docs/how-to/local-runs.md"
    ),
    "probe": Entry(_RUN, "Measure the network between a job's hosts.", "docs/how-to/watch/network.md"),
    "rehearse": Entry(_RUN, "Run a job locally, inject a fault, and report the result.", "docs/how-to/rehearsals.md"),
    "resume": Entry(_RUN, "Continue a stopped or failed job from its checkpoints.", "docs/how-to/checkpoints.md"),
    "scale": Entry(_RUN, "Estimate speed and cost with more hosts.", "docs/how-to/scale.md"),
    "size": Entry(_RUN, "Show which storage is fast enough for a job's data.", "docs/how-to/watch/storage.md"),
    "follow": Entry(_WATCH, "Show the logs and the progress of a job until it ends.", "docs/how-to/jobs.md"),
    "status": Entry(_WATCH, "Show the status of a job, its speed and the time left.", "docs/how-to/watch/progress.md"),
    "trials": Entry(_WATCH, "List the trials of a sweep, best first.", "docs/how-to/tuning/sweeps.md"),
    "logs": Entry(_WATCH, "Print the logs of a job.", "docs/how-to/jobs.md"),
    "metrics": Entry(
        _WATCH, "Print the metrics of a job, or serve them to Prometheus.", "docs/how-to/watch/tracking.md"
    ),
    "diagnose": Entry(_WATCH, "Show what limits the speed of a job.", "docs/how-to/watch/diagnose.md"),
    "report": Entry(_WATCH, "Write an HTML page about the run of a job.", "docs/how-to/watch/progress.md"),
    "compare": Entry(_WATCH, "Compare the settings, speed and cost of two jobs.", "docs/how-to/watch/progress.md"),
    "list": Entry(_WATCH, "List the jobs launched from this folder.", "docs/how-to/jobs.md"),
    "cost": Entry(_AFTER, "Show what jobs, endpoints and warm pools cost.", "docs/how-to/team/cost.md"),
    "download": Entry(_AFTER, "Download the model and the output of a job.", "docs/how-to/jobs.md"),
    "checkpoints": Entry(
        _AFTER, "List, verify, fetch or delete the checkpoints of a job.", "docs/how-to/checkpoints.md"
    ),
    "stop": Entry(_AFTER, "Stop a job.", "docs/how-to/jobs.md"),
    "deploy": Entry(_SERVE, "Serve the model of a job as an endpoint.", _SERVING),
    "invoke": Entry(_SERVE, "Send a request to an endpoint and print the answer.", _SERVING),
    "endpoints": Entry(_SERVE, "List endpoints, their cost and the time left.", _SERVING),
    "undeploy": Entry(_SERVE, "Delete an endpoint.", _SERVING),
    "local": Entry(
        _TOOLS, "Start, stop and inspect the local cloud (a local AWS server).", "docs/how-to/local-cloud.md"
    ),
    "doctor": Entry(_TOOLS, "Check whether this machine can run jobs.", "docs/how-to/doctor.md"),
    "image": Entry(_TOOLS, "Build, push and inspect training images.", "docs/how-to/images.md"),
    "completion": Entry(_TOOLS, "Print the completion script for your shell.", "docs/how-to/completion.md"),
}


class _Commands(Group):
    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        with _closed_pipe_ignored():  # --help prints here
            return super().make_context(*arguments, **extra)
        raise click.exceptions.Exit(ExitCode.OK)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipe_ignored():
            return super().invoke(ctx)
        raise click.exceptions.Exit(_code_without_reader(ctx.invoked_subcommand))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"smdp_launch.cli.commands.{cmd_name}").command
        command.short_help = COMMANDS[cmd_name].summary
        return with_help_layout(command, COMMANDS[cmd_name].page)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # one column in all sections
        for section, names in groupby(COMMANDS, lambda name: COMMANDS[name].section):
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), COMMANDS[name].summary) for name in names])


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MOST_COLUMNS},
    epilog="Run `smdp-launch COMMAND --help` for details. Documentation: docs/index.md",
)
@click.version_option(__version__, prog_name="smdp-launch")
def smdp_launch() -> None:
    """Check distributed training jobs for Amazon SageMaker, run them locally, and launch them.

    \b
    smdp-launch init src/         write job.yaml for the script in src/
    smdp-launch validate          report every error in job.yaml
    smdp-launch plan              show the request that a launch would send
    smdp-launch launch --local    run the job on simulated hosts on this machine
    smdp-launch launch            run the job on SageMaker
    """  # noqa: D301 - click reads \b as "keep the line breaks of this paragraph"


def main() -> NoReturn:
    """Run the command line and exit with a code of docs/reference/exit-codes.md."""
    # Imports create many objects that live until the end: scanning them repeatedly costs 6 % of a short command's time.
    gc.set_threshold(50_000)
    continue_without_stderr()
    _open_closed_streams()
    _print_every_character()
    try:
        code = smdp_launch.main(standalone_mode=False)
    except click.ClickException as error:
        code = error.exit_code
        with _closed_pipe_ignored():
            error.show()
            _print_json_error(code, error.format_message())
    except SmdpError as error:
        code = error.exit_code
        with _closed_pipe_ignored():
            _print_error(error)
    except (click.Abort, KeyboardInterrupt):
        code = ExitCode.INTERRUPTED
        with _closed_pipe_ignored():
            click.echo("interrupted", err=True)
            _print_json_error(code, "interrupted")
    except Exception as error:
        code = _print_unexpected(error)
    gc.freeze()  # the last collection would take a third of a short command's time, and the process ends anyway
    sys.exit(int(code or 0))


def _open_closed_streams() -> None:
    """Python has no object for a stream that the shell has closed (`>&-`)."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def _print_every_character() -> None:
    """Escape the characters that the encoding of standard output does not have, as standard error does. Output that is
    redirected has the encoding of the system, which on Windows and in the C locale is not UTF-8."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        return
    is_utf8 = codecs.lookup(stream.encoding).name == "utf-8"
    if stream.errors == "strict" or (stream.errors == "surrogateescape" and not is_utf8):
        stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _closed_pipe_ignored() -> Iterator[None]:
    """End the block without an error if the reader of standard output has exited, and discard the buffer, which Python
    would write at exit."""
    try:
        yield
    except OSError as error:
        if not is_closed_pipe(error):
            raise
        if has_reader(sys.stdout.fileno()):  # click exits without a word at every BrokenPipeError
            raise RuntimeError("another pipe than that of the output is closed") from error
        discard(sys.stdout.fileno())


def _code_without_reader(command: str | None) -> ExitCode:
    """The exit code of a command that has ended because the reader of its output has exited."""
    is_help = not {"-h", "--help"}.isdisjoint(sys.argv[1:])
    return ExitCode.OK if is_help or command is None or command in _ONLY_PRINT else ExitCode.READER_EXITED


def _print_unexpected(error: Exception) -> ExitCode:
    problem = _environment_problem(error)
    if problem is not None:
        with contextlib.suppress(OSError):
            click.echo(f"smdp-launch: {problem}", err=True)
            _print_json_error(ExitCode.ENVIRONMENT, problem)
        discard(sys.stdout.fileno())
        return ExitCode.ENVIRONMENT
    import traceback

    traceback.print_exception(error)
    click.echo("This is a bug in smdp-launch, not an error in your job. Report it with the lines above.", err=True)
    with contextlib.suppress(OSError):
        summary = traceback.format_exception_only(error)[-1].strip()
        _print_json_error(ExitCode.BUG, f"a bug in smdp-launch: {summary}")
    return ExitCode.BUG


def _environment_problem(error: Exception) -> str | None:
    """The message for a full disk, a deleted working directory, or state files that another user may have prepared:
    any statement can meet these. None for other errors."""
    if isinstance(error, NotPrivate):
        return str(error)
    if isinstance(error, OSError) and is_full(error):
        path = Path(error.filename) if isinstance(error.filename, str) else _output_file()
        return why(error, path) if path is not None else "disk full: the output cannot be written"
    return DELETED if is_deleted() else None


def _output_file() -> Path | None:
    """The file that standard output is redirected to. (An error of writing to it has no file name.)"""
    path = Path("/proc/self/fd/1").resolve()
    return path if path.is_file() else None


def _print_error(error: SmdpError) -> None:
    from smdp_launch.cli.render.diagnostics import print_diagnostics

    diagnostics = error.diagnostics if isinstance(error, JobFileRefused | Refused) else []
    print_diagnostics(diagnostics)
    if not isinstance(error, JobFileRefused):
        click.echo(f"smdp-launch: {error}", err=True)
    if not isinstance(error, JobFileRefused) or _has_json_lines():  # else the command's own JSON has the diagnostics
        _print_json_error(error.exit_code, str(error), diagnostics)


def _print_json_error(code: int, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
    """Print the error as JSON on standard output if ``--json`` is given, even in a command line with a usage error."""
    if "--json" not in sys.argv:
        return
    from smdp_launch.cli.render.json_output import json_text

    document = {
        "error": _ERROR_VERSION,
        "exit_code": int(code),
        "message": message,
        "diagnostics": [one.to_json() for one in diagnostics],
    }
    click.echo(json_text(document, indent=None if _has_json_lines() else 2))


def _has_json_lines() -> bool:
    """Whether the command prints JSON lines, of which an error is the last."""
    return sys.argv[1:2] in (["launch"], ["rehearse"], ["follow"], ["resume"])
