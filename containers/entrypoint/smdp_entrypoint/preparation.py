"""Everything that happens before the first worker: contract, code, requirements, layout, first host."""

from __future__ import annotations

import importlib.util
import secrets
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Mapping

from smdp_entrypoint.contract import cuda_on_cpu
from smdp_entrypoint.contract.custom_options import exported_variables
from smdp_entrypoint.contract.devices import check_gpus, count_devices
from smdp_entrypoint.contract.environment import Facts, sm_variables, toolkit_variables
from smdp_entrypoint.contract.errors import ContractError, NetworkError, ProgramError
from smdp_entrypoint.contract.health import check_health
from smdp_entrypoint.contract.hyperparameters import to_arguments
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.platform_files import (
    Contract,
    ResourceConfig,
    has_checkpoint_config,
    read_contract,
    read_resources,
)
from smdp_entrypoint.contract.rank_layout import Layout, plan_layout, training_hosts
from smdp_entrypoint.contract.settings import (
    NETWORK_PROBE_S,
    ControlSettings,
    HangSettings,
    NetworkSettings,
    Settings,
)
from smdp_entrypoint.contract.worker_variables import (
    Master,
    default_variables,
    has_engine,
    host_variables,
    instance_type,
    valid_variables,
    with_code_on_path,
    worker_variables,
)
from smdp_entrypoint.control.addresses import AddressBook
from smdp_entrypoint.control.clocks import LONGEST_S, check_clock
from smdp_entrypoint.control.first_host import FirstHost
from smdp_entrypoint.control.hosts import Resolver, addresses
from smdp_entrypoint.control.link import job_key
from smdp_entrypoint.control.other_host import OtherHost
from smdp_entrypoint.control.peers import PeerLoop, Peers
from smdp_entrypoint.control.workers import Workers
from smdp_entrypoint.fetch.source import fetch_source
from smdp_entrypoint.network.probe import NetworkProbe, Place
from smdp_entrypoint.network.verdict import SLOW
from smdp_entrypoint.processes.child import Child
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.signals import Signals
from smdp_entrypoint.processes.supervisor import Hooks, Supervisor
from smdp_entrypoint.program import Program, find_program, pip_command, pip_environment

_TOKEN = "SMDP_JOB_TOKEN"  # noqa: S105 (the name of a variable)
# An interrupted pip loses nothing, so a stop waits only briefly for it.
_PIP_STOP_BUDGET_S = 5.0


@dataclass(frozen=True)
class Job:
    """What to start on this host. `environ` is common to its workers; `worker_environ` adds a worker's own
    variables."""

    argv: list[str]
    code: Path
    layout: Layout
    master: Master
    contract: Contract
    environ: Mapping[str, str]
    stop_budget: float
    timing_interval: float
    network: NetworkSettings
    hang: HangSettings

    @property
    def place(self) -> Place:
        return Place(self.layout, instance_type(self.contract), self.network)

    def worker_environ(self, local_rank: int) -> dict[str, str]:
        return {**self.environ, **worker_variables(self.contract, self.layout, local_rank)}


def prepare(tree: MlTree, environ: Mapping[str, str], console: Console, signals: Signals, peers: Peers) -> Job | None:
    """Prepare the job on this host; None for a job that only probes its network, and has done so.

    Raises EntrypointError, StopRequested at a stop signal, and OthersFailed when another host fails meanwhile.
    """
    resources = read_resources(tree)
    console.host = resources.current_host
    control = ControlSettings.from_environment(environ)
    _join_peers(resources, control, environ, console, peers)
    settings = Settings.from_environment(environ)
    if settings.timing_interval is None:
        console.say("this host is not measured: SMDP_TIMING_S must be a number of seconds, for example 5")
    contract = _read_contract(tree, environ)
    tree.create()
    _create_checkpoints(contract.checkpoints, tree, console)
    if settings.network.only:
        _probe_network(contract, settings.network, console, peers)
        return None
    facts = Facts(contract, tree, count_devices(console.say), environ)
    if settings.require_gpu and settings.workers_per_host is None:
        check_gpus(facts.devices, contract.resources.instance_type)
    if settings.checks_health:
        own, type_ = contract.resources.current_host, contract.resources.instance_type
        folders = [tree.root, *_temporary_folder(), contract.checkpoints]
        check_health(own, type_, facts.devices, folders, console.say)
    layout = plan_layout(contract, settings, facts.devices, console.say)
    if layout.trains:
        peers.announce(Workers(layout.hosts[0], layout.workers_per_host))
    fetch_source(facts.source, tree, _with_region(environ, contract), console.say)
    program = find_program(facts.entry_point, tree.code)
    _install(program, environ, console, signals, peers)
    resolver = Resolver(control.hosts_file, console.say, control.hosts_timeout)
    address = resolver.first_address(list(layout.hosts))
    token = _token(environ, layout, control.hosts_timeout, console, peers)
    if settings.checks_health and contract.resources.current_host != contract.resources.hosts[0]:
        difference = peers.clock_within(LONGEST_S)
        check_clock(contract.resources.current_host, contract.resources.hosts[0], difference, console.say)
    master = Master(layout.hosts[0], address, settings.master_port)
    host_environ = _host_environ(facts, layout, master, token, console)
    cuda_on_cpu.check(host_environ, facts.devices.gpus)
    return Job(
        argv=program.argv(to_arguments(contract.hyperparameters.script)),
        code=tree.code,
        layout=layout,
        master=master,
        contract=contract,
        environ=host_environ,
        stop_budget=settings.stop_budget,
        timing_interval=settings.timing_interval or 0.0,
        network=settings.network,
        hang=settings.hang,
    )


def _read_contract(tree: MlTree, environ: Mapping[str, str]) -> Contract:
    contract = read_contract(tree)
    job_name = environ.get("TRAINING_JOB_NAME")
    # Only the toolkit in AWS's TensorFlow images changes a hyperparameter.
    if not job_name or importlib.util.find_spec("tensorflow") is None:
        return contract
    return replace(contract, hyperparameters=contract.hyperparameters.with_model_dir_of_trial(job_name))


def _create_checkpoints(folder: Path, tree: MlTree, console: Console) -> None:
    """Raises ContractError only in a job whose request has a CheckpointConfig: without one, the platform uploads no
    checkpoints."""
    try:
        tree.create(folder)
    except ContractError as error:
        if has_checkpoint_config(tree):
            raise
        console.say(str(error))


def _temporary_folder() -> list[Path]:
    try:
        return [Path(tempfile.gettempdir())]
    except OSError:  # none can be written to
        return []


def _join_peers(
    resources: ResourceConfig, settings: ControlSettings, environ: Mapping[str, str], console: Console, peers: Peers
) -> None:
    """Open the control channel: from here on every host learns of a failure on any host."""
    hosts, own = resources.hosts, resources.current_host
    if len(hosts) == 1:
        return
    configured_token = environ.get(_TOKEN)
    key = job_key(configured_token, environ.get("TRAINING_JOB_ARN", ""), *hosts)
    resolver = Resolver(settings.hosts_file, lambda text: None, settings.hosts_timeout)

    def address() -> str:
        return resolver.first_address(hosts)

    if own == hosts[0]:
        book = None if configured_token else AddressBook(settings.hosts_file)
        token = configured_token or secrets.token_hex(16)
        role: FirstHost | OtherHost = FirstHost(own, hosts[1:], key, address, settings.port, token, book)
    else:
        own_addresses = partial(addresses, settings.hosts_file, own)
        role = OtherHost(own, hosts[0], key, address, settings.port, own_addresses)
    peers.join(PeerLoop(role, console.say))


def _probe_network(contract: Contract, settings: NetworkSettings, console: Console, peers: Peers) -> None:
    """Raises NetworkError if the network has a problem, with the first host's verdict on all hosts."""
    hosts, own = training_hosts(contract), contract.resources.current_host
    if len(hosts) == 1 or own not in hosts:
        console.say("network: a job of one host has no links to probe")
        return
    required = replace(settings, require=settings.require or SLOW, limit=settings.limit or NETWORK_PROBE_S)
    place = Place(Layout(tuple(hosts), own, 1), instance_type(contract), required)
    reasons: list[str] = []
    probe = NetworkProbe(place, console, peers, reasons.append)
    probe.start()
    try:
        probe.finished.wait()
    finally:
        probe.finish()
    if reasons:
        raise NetworkError(reasons[0])
    if probe.result is None and not probe.has_ended:
        raise NetworkError("The network was not probed: the hosts have no addresses of their own, or did not answer.")


def needs_token(environ: Mapping[str, str]) -> bool:
    """Whether the hosts need the token that the first host generates."""
    return not environ.get(_TOKEN) and has_engine()


def _token(environ: Mapping[str, str], layout: Layout, timeout: float, console: Console, peers: Peers) -> str | None:
    """The secret by which the engines of the job's hosts authenticate each other. The request does not contain it,
    since everyone who may describe the job can read the request: the first host generates a token for each run."""
    if not needs_token(environ):
        peers.await_contact(console.say)
        return environ.get(_TOKEN)
    return peers.await_token(console.say, layout.hosts[0], timeout)


def _with_region(environ: Mapping[str, str], contract: Contract) -> Mapping[str, str]:
    """The platform's region, else the one that the SDK wrote into the hyperparameters."""
    region = contract.hyperparameters.own.get("sagemaker_region")
    return {"AWS_DEFAULT_REGION": str(region), **environ} if region else environ


def _install(program: Program, environ: Mapping[str, str], console: Console, signals: Signals, peers: Peers) -> None:
    program.prepare()
    requirements = program.requirements()
    if not requirements:
        return
    from smdp_entrypoint.fetch import codeartifact  # its HTTP client would delay the start of every job

    variables = pip_environment(environ)
    index = environ.get(codeartifact.VARIABLE)
    if index:
        variables["PIP_INDEX_URL"] = codeartifact.index_url(index, environ)
    console.say(f"installing with pip: {' '.join(requirements)}" + (f" from {index}" if index else ""))
    tail: deque[str] = deque(maxlen=12)

    def on_line(line: str) -> None:
        tail.append(line)
        console.say(line)

    signals.defer()
    pip = Child(pip_command(requirements), variables, program.code, on_line)
    hooks = Hooks(others_failed=lambda: "another host failed" if peers.ending is not None else None)
    Supervisor([pip], console, signals, stop_budget=_PIP_STOP_BUDGET_S, hooks=hooks).run()
    signals.raise_deferred()
    if pip.exit_status is None or not pip.exit_status.succeeded:
        outcome = (
            f"exit code {pip.exit_status.code}" if pip.exit_status and pip.exit_status.code is not None else "a signal"
        )
        raise ProgramError("\n".join([f"pip install {' '.join(requirements)} failed with {outcome}.", *tail]))


def _host_environ(facts: Facts, layout: Layout, master: Master, token: str | None, console: Console) -> dict[str, str]:
    defaults = {
        **default_variables(facts.contract, layout, facts.devices, facts.environ, console.say),
        # The platform uploads this folder with the job's output, after a failure too. The engine writes its flight
        # records there when a group fails.
        "SMDP_TRACE_DIR": str(facts.tree.output_data / "flight"),
    }
    of_job = {
        **toolkit_variables(facts),
        **sm_variables(facts),
        **host_variables(facts.contract, layout, master),
        **({_TOKEN: token} if token else {}),
    }
    exported = exported_variables(facts.contract, facts.environ, {*defaults, *of_job}, console.say)
    variables = {**defaults, **facts.environ, **exported, **of_job}
    return valid_variables(with_code_on_path(variables, facts.tree.code), console.say)
