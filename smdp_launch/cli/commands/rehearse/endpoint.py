"""``smdp-launch rehearse slow-start | crash | overload``: a fault of an endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smdp_launch.cli.commands.rehearse.sharing import (
    SECONDS,
    combined,
    duration,
    job,
    print_report,
    report_page,
    within,
    writable_page,
)
from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.checking import check
from smdp_launch.cli.shared.local_runs import require_linux

if TYPE_CHECKING:
    from smdp_launch.catalog.hosting.faults import Kind
    from smdp_launch.cli.shared.serving import TrainedJob
    from smdp_launch.errors import ExitCode
    from smdp_launch.rehearsals.endpoint.caller import Request

_asked = combined(
    click.option(
        "--request",
        "request_file",
        metavar="FILE",
        required=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with the request. The command sends the request repeatedly.",
    ),
    click.option(
        "--content-type",
        metavar="TYPE",
        help="MIME type of the request. Default: serve.content_type, or by the file's name.",
    ),
    click.option("--job", "trained", metavar="NAME", help="The local job with the model. Default: the latest."),
)
_after = click.option(
    "--after",
    metavar="SECONDS",
    type=SECONDS,
    default=2,
    show_default=True,
    help="Inject the fault this many seconds after the endpoint is in service.",
)
_within = within("the endpoint must answer again")


@click.command("slow-start", short_help="Start the containers of an endpoint slowly.")
@job
@_asked
@duration(20, "Seconds in which the health check of a started container fails.")
@_within
@options.json_document
@report_page
def slow_start(**values: Any) -> ExitCode:
    """Serve the model of JOBFILE (default: job.yaml) locally, with containers that take long to start.

    The endpoint passes if it is in service in time (serve.startup_timeout, 600 s by default) and then answers.
    """
    return _rehearse("slow-start", after=0.0, **values)


@click.command("crash", short_help="Kill a container of an endpoint.")
@job
@_asked
@_after
@_within
@options.json_document
@report_page
def crash(**values: Any) -> ExitCode:
    """Serve the model of JOBFILE (default: job.yaml) locally, and kill a container while it is called.

    The endpoint passes if all hosts are in service again and it answers within the time in --within.
    """
    return _rehearse("crash", seconds=0.0, **values)


@click.command("overload", short_help="Refuse the requests of an endpoint for some seconds.")
@job
@_asked
@_after
@duration(10, "Seconds for which requests are refused.")
@_within
@options.json_document
@report_page
def overload(**values: Any) -> ExitCode:
    """Serve the model of JOBFILE (default: job.yaml) locally, and refuse its requests for some seconds.

    The endpoint passes if it answers again. The report shows how long a caller has to retry.
    """
    return _rehearse("overload", **values)


COMMANDS = (slow_start, crash, overload)


def _rehearse(
    kind: Kind,
    *,
    job_file: Path,
    settings: tuple[str, ...],
    request_file: Path,
    content_type: str | None,
    trained: str | None,
    seconds: float,
    after: float,
    within: float,
    as_json: bool,
    page: Path | None,
) -> ExitCode:
    import secrets
    from datetime import datetime, timezone

    from smdp_launch import __version__
    from smdp_launch.catalog.hosting.faults import EndpointFault
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.cli.render.rehearse import print_endpoint_fault
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.errors import ExitCode, Refused
    from smdp_launch.jobs.records.history import LOCAL
    from smdp_launch.jobs.service.clients import connection
    from smdp_launch.rehearsals.endpoint.report import endpoint_report
    from smdp_launch.rehearsals.endpoint.run import rehearse_endpoint
    from smdp_launch.request.names import job_name
    from smdp_launch.serving.plan import NO_SECTION, LocalServing, serving_plan
    from smdp_launch.serving.trained import model_of

    require_linux("rehearse")
    page = writable_page(page)
    checked = check(job_file, LocalRequest(), settings=settings)
    spec, _ = checked.require()
    if spec.serve is None:
        raise Refused(f"{checked.path}: {NO_SECTION}")
    if spec.serve.kind not in ("realtime", "serverless"):
        raise Refused(
            f"`kind: {spec.serve.kind}` has no caller that waits for an answer: rehearse it with "
            "--set serve.kind=realtime"
        )
    request = _request(request_file, content_type or spec.serve.content_type, spec.serve.kind)
    model_job = _trained(trained)
    fault = EndpointFault(kind, float(seconds), float(after))
    made = datetime.now(timezone.utc)
    with connection(LOCAL, model_job.state)() as clients:
        clients.on_waiting = print_retry
        # A name of its own: the job's name may belong to an endpoint of the user.
        name = job_name(spec.name, made, secrets.randbelow(1 << 16))
        model = model_of(clients, model_job.name)
        plan = serving_plan(checked, name, LOCAL, model, lambda: made, local=LocalServing(fault))
        if not as_json:
            print_endpoint_fault(plan, fault)

        def show(status: str) -> None:
            if not as_json:
                click.echo(f"{name}: {status}")

        with interrupts_deferred(clients):
            found = rehearse_endpoint(clients, plan, str(model_job.state), fault, request, within, show)
    result = endpoint_report(plan, fault, found, within, model_job.name, __version__)
    print_report(result, as_json, page, request_file)
    return ExitCode.OK if result.passed else ExitCode.REHEARSAL_FAILED


def _request(path: Path, content_type: str | None, kind: str) -> Request:
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.rehearsals.endpoint.caller import Request
    from smdp_launch.serving.invoke import check_size, content_type_of

    try:
        body = path.read_bytes()
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be read: {error.strerror or error}") from error
    check_size(kind, body)
    return Request(body, content_type or content_type_of(path.suffix))


def _trained(name: str | None) -> TrainedJob:
    """The local job with this name; by default, the latest local job of this folder.

    Raises:
        Refused: there is none.
    """
    from smdp_launch.cli.shared.serving import trained_job
    from smdp_launch.errors import Refused
    from smdp_launch.jobs.records.history import LOCAL, launches

    if name is None:
        name = next((one.job for one in reversed(launches()) if one.where == LOCAL), None)
    if name is None:
        raise Refused("no local job of this folder has a model to serve: train it with `smdp-launch launch --local`")
    return trained_job(name, None, is_local=True)
