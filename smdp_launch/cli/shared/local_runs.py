"""Options and plans of commands that run a job locally."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from smdp_launch.cli.shared.help import LocalOption
from smdp_launch.systems import linux_refusal, usable_processors

if TYPE_CHECKING:
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.planning.plan import LocalRun, Plan

_Command = TypeVar("_Command", bound=Callable[..., Any])
_option = partial(click.option, cls=LocalOption)


def _channel_paths(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    """Parse the ``NAME=PATH`` of each ``--data``."""
    paths: dict[str, Path] = {}
    for value in values:
        name, _equals, path = value.partition("=")
        if not (name and path):
            raise click.BadParameter(f"{value!r} is not NAME=PATH")
        if name in paths:
            raise click.BadParameter(f"channel {name} is given twice")
        paths[name] = Path(path)
    return paths


def _network(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    from smdp_launch.catalog.local_cloud import OWN_NETWORK

    if text not in (None, OWN_NETWORK) and linux_refusal("a local run") is None:
        from smdp_launch.localcloud.client.machine import bits_per_second

        try:
            bits_per_second(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return text


def local_options(command: _Command) -> _Command:
    """Add the options of a local run. The command passes them as keywords to `local_request` and `require_local`."""
    hosts = click.IntRange(1, 64)
    options = [
        _option("--hosts", metavar="N", type=hosts, help="Number of hosts to simulate."),
        _option("--workers-per-host", metavar="N", type=hosts, help="Number of workers on each host."),
        _option(
            "--data",
            metavar="NAME=PATH",
            multiple=True,
            callback=_channel_paths,
            help="Local data of channel NAME; may be repeated.",
        ),
        _option("--containers", is_flag=True, help="Start each host from the job's image (needs root)."),
        _option(
            "--network",
            metavar="own|SPEED",
            callback=_network,
            help="Give the job its own network; a speed such as 1gbit also limits its links (needs root).",
        ),
        _option("--cuda-on-cpu", is_flag=True, help="Emulate CUDA on the CPU (docs/how-to/cuda-on-cpu.md)."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def require_linux(what: str) -> None:
    """Raises:
    EnvironmentProblem: this system runs no local jobs.
    """
    from smdp_launch.errors import EnvironmentProblem

    refusal = linux_refusal(what)
    if refusal is not None:
        raise EnvironmentProblem(refusal)


def require_local(command: str, options: Mapping[str, Any], *, is_local: bool) -> None:
    """Refuse options of a local run without ``--local``, and ``--local`` on another system than Linux."""
    in_use = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if in_use and not is_local:
        raise click.UsageError(f"{in_use[0]} requires --local")
    if is_local:
        require_linux(f"{command} --local")


def local_request(options: Mapping[str, Any]) -> LocalRequest:
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.jobs.records.local_clouds import file_systems

    return LocalRequest(**options, file_systems=file_systems())


def local_run_of(checked: CheckedJob, request: LocalRequest) -> LocalRun:
    """How this machine runs a valid job.

    Raises:
        EnvironmentProblem: this machine cannot run it as requested.
    """
    from smdp_launch.doctor.packages import engine_missing
    from smdp_launch.localcloud.client import connect
    from smdp_launch.planning.prepare import local_run

    if request.network is not None:
        _require_network(request.network)
    problem = connect.isolation().explanation
    return local_run(checked, request, usable_processors(), problem, connect.inputs_refusal, engine_missing)


def local_plan(checked: CheckedJob, run: LocalRun, *, with_sweep: bool = False) -> Plan:
    """Args:
        with_sweep: plan the job's sweep, not one job.

    Raises:
    EnvironmentProblem: this machine cannot run hosts from the job's image.
    """
    from smdp_launch.planning.prepare import make_plan

    plan = make_plan(checked, local=run, with_sweep=with_sweep)
    if run.containers:
        _require_image(plan)
    return plan


def require_runnable(plan: Plan) -> None:
    """Check before anything starts whether this machine can run the plan.

    Raises:
        EnvironmentProblem: it cannot.
    """
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.doctor.local_run import require

    with busy("checking whether this machine can run the job"):
        require(plan)


def require_slow_input(checked: CheckedJob, rate: float, latency: float) -> None:
    """Check before the job runs whether it has channels, and whether this machine can slow them."""
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud.client import connect

    spec, _ = checked.require()
    if not rate and not latency:
        raise click.UsageError("nothing would be slow: pass a --rate or a --latency that is not 0")
    if not spec.channels:
        raise click.UsageError(f"{spec.name} has no input channel to slow: add one to `channels:` in the job file")
    if all(getattr(one, "access", "ro") == "rw" for one in spec.channels.values()):
        raise click.UsageError("only channels that the job cannot write to can be slowed: write `access: ro`")
    problem = connect.inputs_problem()
    if problem is not None:
        raise EnvironmentProblem(
            f"input channels cannot be slowed on this machine ({problem.reason}): {problem.remedy}"
        )


@contextmanager
def local_cloud_for(plan: Plan) -> Iterator[Clients]:
    """Start the local cloud, upload the job's data to it and record the launch. The caller creates the job."""
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.jobs.records.history import record_plan
    from smdp_launch.jobs.records.local_clouds import local_cloud_folder
    from smdp_launch.jobs.service.clients import local_cloud
    from smdp_launch.jobs.submit import seed

    state = local_cloud_folder()
    with local_cloud(state)() as clients:
        clients.on_waiting = print_retry
        seed(clients, plan)
        record_plan(plan, plan.made, state)
        yield clients


def _require_network(requested: str) -> None:
    """Check before the launch whether this machine supports the network.

    Raises:
        EnvironmentProblem: it does not.
    """
    from smdp_launch.catalog.local_cloud import OWN_NETWORK
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud.client.machine import network_refusal

    reason = network_refusal(is_shaped=requested != OWN_NETWORK)
    if reason is not None:
        raise EnvironmentProblem(
            f"{reason}; or omit --network to let the hosts share this machine's loopback interface"
        )


def _require_image(plan: Plan) -> None:
    """Check before the launch whether this machine can run hosts from the job's image.

    Raises:
        EnvironmentProblem: it cannot.
    """
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud.client.machine import ContainerError, check_image

    try:
        check_image(plan.request["AlgorithmSpecification"]["TrainingImage"])
    except ContainerError as error:
        raise EnvironmentProblem(f"{error}; choose another image with --set image=NAME:TAG") from error
