"""A checked job's path to its plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from smdp_launch.checking.inputs import LocalRequest, local_paths
from smdp_launch.checking.job import CheckedJob, launch_problems
from smdp_launch.planning.local import local_request, not_honoured, without_namespaces
from smdp_launch.planning.origins import origins
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.request.batch import script_hyperparameters, workers_per_host
from smdp_launch.request.build import training_request
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.request.names import job_name
from smdp_launch.request.ranks import rank_map


def make_plan(job: CheckedJob, now: datetime, suffix: int, local: LocalRun | None = None) -> Plan:
    """The plan of a job without errors.

    Args:
        now, suffix: what makes the job's name its own (``request.names.job_name``).
        local: for a run on this machine; changes the request's instance count and environment.

    Raises:
        JobFileRefused: the job has errors.
    """
    spec, source = job.require()
    name = job_name(spec.name, now, suffix)
    request = training_request(spec, source, name)
    hosts, workers = spec.compute.instance_count, workers_per_host(spec)
    if local is not None:
        hosts, workers = local.hosts, local.workers_per_host
        request = local_request(request, source, local)
    return Plan(
        job=name,
        job_file=str(job.path),
        made=now,
        spec=spec,
        request=request,
        ranks=tuple(rank_map(hosts, workers)),
        source=source,
        script_arguments=tuple(script_arguments(script_hyperparameters(spec))),
        local=local,
        prices=job.facts.prices if job.facts is not None else None,
        origins=origins(spec, job.loaded.document),
        diagnostics=job.diagnostics,
        placeholders=job.placeholders,
        launch_problems=tuple(launch_problems(job)),
    )


def local_run(job: CheckedJob, asked: LocalRequest, cores: int) -> LocalRun:
    """How the job runs on a machine of ``cores`` cores: as asked, else as many of its hosts and workers as fit."""
    spec, source = job.require()
    hosts = asked.hosts or min(spec.compute.instance_count, 4)
    workers = asked.workers_per_host or max(1, min(workers_per_host(spec), cores // hosts))
    request = training_request(spec, source, spec.name)
    told = not_honoured(spec, request, hosts, workers, containers=asked.containers, rehearses=asked.rehearses)
    left_out = tuple(told)
    data = local_paths(job.loaded, spec, asked)
    return LocalRun(hosts, workers, data, left_out, asked.containers, asked.network, asked.cuda_on_cpu)


def with_isolation(run: LocalRun, job: CheckedJob, refusal: str | None) -> LocalRun:
    """The same run, with what it does not honour if hosts are refused namespaces here for some reason."""
    spec, _ = job.require()
    left_out = without_namespaces(spec, refusal) if refusal is not None else ()
    return replace(run, not_honoured=(*run.not_honoured, *left_out))
