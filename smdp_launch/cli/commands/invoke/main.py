from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.amounts import Seconds

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode

_STANDARD_INPUT = "-"


@click.command("invoke")
@click.argument("arguments", nargs=-1, metavar="[NAME] FILE|-", required=True)
@click.option(
    "--content-type", metavar="TYPE", help="MIME type of FILE. Default: serve.content_type, or by the file's name."
)
@click.option("--accept", metavar="TYPE", help="MIME type of the answer.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the answer to this file.")
@click.option(
    "--timeout",
    type=Seconds(1, 3600),
    metavar="SECONDS",
    default=900.0,
    show_default=True,
    help="How long an asynchronous endpoint may take for the answer, 3600 at most.",
)
@options.endpoint_region
def command(
    arguments: tuple[str, ...],
    content_type: str | None,
    accept: str | None,
    output: Path | None,
    timeout: float,
    region: str | None,
) -> ExitCode:
    """Send FILE to endpoint NAME (default: the latest), and print the answer. FILE `-` is standard input.

    The command prints the answer unchanged to standard output.
    """
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.cli.shared.serving import served_endpoint
    from smdp_launch.draft.user_files import write_file
    from smdp_launch.errors import EnvironmentProblem, ExitCode, ModelFailed, Refused
    from smdp_launch.request.names import S3Location
    from smdp_launch.serving.invoke import ANY_TYPE, content_type_of, invoke, invoke_async

    if len(arguments) > 2:
        raise click.UsageError("too many arguments: [NAME] FILE")
    name, file = (arguments[0], arguments[1]) if len(arguments) == 2 else (None, arguments[0])
    target = served_endpoint(name, region)
    known, endpoint = target.known, target.name
    if target.kind == "batch":
        raise Refused(f"{endpoint} is a batch transform: it has answered all of its input, and takes no requests")
    try:
        body = sys.stdin.buffer.read() if file == _STANDARD_INPUT else Path(file).read_bytes()
    except OSError as error:
        raise EnvironmentProblem(f"{file} cannot be read: {error.strerror or error}") from error
    by_name = ANY_TYPE if file == _STANDARD_INPUT else content_type_of(Path(file).suffix)
    chosen = content_type or (known.content_type if known is not None else None) or by_name
    with target.connect() as clients:
        clients.on_waiting = print_retry
        if known is not None and known.inputs is not None:
            with interrupts_deferred(clients):
                inputs = S3Location.parse(known.inputs)
                answer = invoke_async(clients, endpoint, body, chosen, inputs, timeout, accept)
        else:
            try:
                answer = invoke(clients, endpoint, body, chosen, accept, target.kind)
            except ModelFailed as error:
                for line in error.log:
                    click.echo(f"  {line}", err=True)
                raise
    if output is None:
        sys.stdout.buffer.write(answer.body)
        if answer.body and sys.stdout.isatty() and not answer.body.endswith(b"\n"):
            sys.stdout.buffer.write(b"\n")
        sys.stdout.flush()
        return ExitCode.OK
    write_file(output, answer.body)
    return ExitCode.OK
