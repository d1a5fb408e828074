"""Make the plan of a checked job."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime, timezone

from smdp_launch.checking.inputs import LocalRequest, local_paths
from smdp_launch.checking.job import CheckedJob
from smdp_launch.planning.local import (
    local_request,
    needs_gpus,
    network_not_checked,
    not_simulated_locally,
    without_namespaces,
)
from smdp_launch.planning.origins import origins
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.request.batch import script_hyperparameters, workers_per_host
from smdp_launch.request.build import training_request
from smdp_launch.request.groups import host_count
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.request.names import job_name, sweep_name
from smdp_launch.request.ranks import rank_map
from smdp_launch.request.tuning import base_name, tuning_request

#: Hosts of each group in a local run, if its options do not set them.
_MOST_HOSTS = 4


def make_plan(
    job: CheckedJob,
    now: datetime | None = None,
    suffix: int | None = None,
    local: LocalRun | None = None,
    *,
    with_sweep: bool = True,
) -> Plan:
    """The plan of a job without errors.

    Args:
        now, suffix: for the job's unique name (``request.names.job_name``); the current time and a random number by
            default.
        local: the options of a local run, which change the request's instance count and environment.
        with_sweep: without it, the plan is that of one job, whose script gets its own defaults for the ranges.

    Raises:
        JobFileRefused: the job has errors.
    """
    spec, source = job.require()
    if local is not None and local.fault is not None and spec.checkpoint is not None:
        # A rehearsal starts without the checkpoints of another run.
        spec = spec.model_copy(update={"checkpoint": spec.checkpoint.model_copy(update={"shared": False})})
    now = now if now is not None else datetime.now(timezone.utc)
    suffix = suffix if suffix is not None else secrets.randbelow(1 << 16)
    is_sweep = with_sweep and spec.sweep is not None
    name = sweep_name(base_name(spec), now, suffix) if is_sweep else job_name(spec.name, now, suffix)
    request = training_request(spec, source, name)
    hosts, workers, every = spec.compute.instance_count, workers_per_host(spec), host_count(spec)
    if local is not None:
        hosts, workers, every = local.hosts, local.workers_per_host, local.all_hosts
        request = local_request(request, source, local)
    return Plan(
        job=name,
        job_file=str(job.path),
        made=now,
        spec=spec,
        request=request,
        ranks=tuple(rank_map(hosts, workers, every)),
        source=source,
        script_arguments=tuple(script_arguments(script_hyperparameters(spec))),
        local=local,
        prices=job.facts.prices if job.facts is not None else None,
        origins=origins(spec, job.loaded.document),
        diagnostics=job.diagnostics,
        placeholders=job.placeholders,
        launch_problems=job.launch_problems,
        tuning=tuning_request(spec, request, source) if is_sweep else None,
    )


def local_run(
    job: CheckedJob,
    options: LocalRequest,
    cores: int,
    namespace_problem: str | None = None,
    inputs_problem: Callable[[], str | None] = lambda: None,
    engine_missing: Callable[[], str | None] = lambda: None,
) -> LocalRun:
    """The options of a local run of a job without errors.

    Args:
        options: the requested hosts that train, and their workers; by default as many of the job's own as fit the
            machine.
        cores: of this machine.
        namespace_problem: the reason why hosts cannot have their own namespaces; None if they can.
        inputs_problem: returns the reason why hosts cannot read objects of S3 while they train; None if they can. It is
            called only for a job that reads so.
        engine_missing: returns the command that installs the native engine; None if it is installed. It is called only
            for a job that uses AWS's library.

    Raises:
        JobFileRefused: the job has errors.
    """
    spec, source = job.require()
    hosts = options.hosts or min(spec.compute.instance_count, _MOST_HOSTS)
    others = spec.compute.other_groups or {}
    workers = options.workers_per_host or max(1, min(workers_per_host(spec), cores // hosts))
    request = training_request(spec, source, spec.name)
    not_simulated = [
        *not_simulated_locally(
            spec,
            request,
            hosts,
            workers,
            options,
            inputs_problem=inputs_problem,
            engine_missing=engine_missing,
        ),
        *(needs_gpus(job.facts.program, spec.engine, options) if job.facts is not None else ()),
        *network_not_checked(spec, options.network),
        *(without_namespaces(spec, namespace_problem) if namespace_problem is not None else ()),
    ]
    data = local_paths(job.loaded, spec, options)
    return LocalRun(
        hosts,
        workers,
        data,
        tuple(not_simulated),
        options.containers,
        options.network,
        options.cuda_on_cpu,
        other_hosts={name: min(one.instance_count, _MOST_HOSTS) for name, one in others.items()},
    )
