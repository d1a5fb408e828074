"""What the commands share that run a job on this machine: their options, and the plan of such a run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.planning.plan import LocalRun, Plan

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _channel_paths(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    """``NAME=PATH`` of each ``--data``."""
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
    from smdp_launch.localcloud.client.machine import bits_per_second

    if text not in (None, OWN_NETWORK):
        try:
            bits_per_second(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return text


def local_flags(prefix: str = "") -> Callable[[_Command], _Command]:
    """The options that say how a job runs here; each help text begins with ``prefix``. They reach the command as
    keywords, which `local_request` and `given_flags` take."""
    hosts = click.IntRange(1, 64)
    flags = [
        click.option("--hosts", type=hosts, help=f"{prefix}how many hosts to simulate."),
        click.option("--workers-per-host", type=hosts, help=f"{prefix}workers on each host."),
        click.option(
            "--data",
            metavar="NAME=PATH",
            multiple=True,
            callback=_channel_paths,
            help=f"{prefix}the data of a channel on this machine; may be repeated.",
        ),
        click.option("--containers", is_flag=True, help=f"{prefix}run the hosts from the job's image (needs root)."),
        click.option(
            "--network",
            metavar="own|SPEED",
            callback=_network,
            help=f"{prefix}a network of the job's own, or one with links of a speed such as 1gbit (needs root).",
        ),
        click.option(
            "--cuda-on-cpu",
            is_flag=True,
            help=f"{prefix}imitate CUDA on the CPU, for scripts that insist on it (docs/cuda-on-cpu.md).",
        ),
    ]

    def add(command: _Command) -> _Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return add


def given_flags(flags: Mapping[str, Any]) -> list[str]:
    """As they stand on the command line."""
    return [f"--{name.replace('_', '-')}" for name, value in flags.items() if value]


def local_request(flags: Mapping[str, Any]) -> LocalRequest:
    from smdp_launch.checking.inputs import LocalRequest
    from smdp_launch.jobs.records.local_clouds import file_systems

    return LocalRequest(**flags, file_systems=file_systems())


def run_here(checked: CheckedJob, asked: LocalRequest) -> LocalRun:
    """How a sound job runs on this machine.

    Raises:
        EnvironmentProblem: it cannot have what was asked for.
    """
    from smdp_launch.localcloud.client import connect
    from smdp_launch.planning.prepare import local_run, with_isolation

    if asked.network is not None:
        _require_network(asked.network)
    run = local_run(checked, asked, len(os.sched_getaffinity(0)))
    return with_isolation(run, checked, connect.isolation().reason)


def plan_here(checked: CheckedJob, run: LocalRun) -> Plan:
    """Raises:
    EnvironmentProblem: its hosts cannot run from the job's image here.
    """
    from smdp_launch.planning.prepare import make_plan

    plan = make_plan(checked, datetime.now(timezone.utc), secrets.randbelow(1 << 16), run)
    if run.containers:
        _require_image(plan)
    return plan


@contextmanager
def cloud_for(plan: Plan) -> Iterator[Clients]:
    """The local cloud with what the job needs in it, and the launch written down. The job is still to be created."""
    from smdp_launch.cli.render.terminal.waiting import show_waiting
    from smdp_launch.jobs.records.history import remember_plan
    from smdp_launch.jobs.records.local_clouds import local_cloud_folder
    from smdp_launch.jobs.service.clients import local_cloud
    from smdp_launch.jobs.submit import seed

    state = local_cloud_folder()
    with local_cloud(state)() as clients:
        clients.tell = show_waiting
        seed(clients, plan)
        remember_plan(plan, plan.made, state)
        yield clients


def _require_network(asked: str) -> None:
    """Now, not in the job: whether hosts can have a network of their own here, and links of a chosen speed.

    Raises:
        EnvironmentProblem: they cannot.
    """
    from smdp_launch.catalog.local_cloud import OWN_NETWORK
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud.client.machine import network_refusal

    reason = network_refusal(is_shaped=asked != OWN_NETWORK)
    if reason is not None:
        raise EnvironmentProblem(f"{reason}; leave out --network for hosts that share this machine's loopback")


def _require_image(plan: Plan) -> None:
    """Now, not in the job: whether the hosts can run from its image here.

    Raises:
        EnvironmentProblem: they cannot.
    """
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud.client.machine import ContainerError, check_image

    try:
        check_image(plan.request["AlgorithmSpecification"]["TrainingImage"])
    except ContainerError as error:
        raise EnvironmentProblem(f"{error}; another image is chosen with --set image=NAME:TAG") from error
