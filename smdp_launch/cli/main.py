"""The command ``smdp-launch``. A command's module is imported when that command runs: ``--help`` stays quick."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from smdp_launch import __version__
from smdp_launch.errors import ExitCode, JobFileRefused, Refused, SmdpError

#: Commands with the line that ``--help`` shows for each.
COMMANDS = {
    "validate": "Find every mistake in a job file.",
    "plan": "Show exactly what a launch would submit. No network, no credentials.",
    "schema": "Print the job file's schema, for editors.",
    "launch": "Run a job here (--local) or on SageMaker, and follow it to its end.",
    "image": "Build, push and inspect training images.",
    "catalog": "Show which instances, frameworks and images there are.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"smdp_launch.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="smdp-launch")
def smdp_launch() -> None:
    r"""Train on SageMaker with distributed data parallelism, from one job file.

    \b
    smdp-launch validate job.yaml          what is wrong with it, all at once
    smdp-launch plan job.yaml              what would be submitted
    smdp-launch launch job.yaml --local    the same job on this machine
    """


def main() -> NoReturn:
    """Run the command line and leave with the exit code that docs/exit-codes.md states."""
    try:
        code = smdp_launch.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except SmdpError as error:
        _show(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`); nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    except Exception:
        import traceback

        traceback.print_exc()
        click.echo(
            "This is a mistake in smdp-launch, not in your job. Please report it with the lines above.", err=True
        )
        code = ExitCode.BUG
    sys.exit(int(code or 0))


def _show(error: SmdpError) -> None:
    from smdp_launch.cli.render.diagnostics import show_diagnostics

    found = error.diagnostics if isinstance(error, JobFileRefused | Refused) else []
    show_diagnostics(found)
    if not isinstance(error, JobFileRefused):
        click.echo(f"smdp-launch: {error}", err=True)
