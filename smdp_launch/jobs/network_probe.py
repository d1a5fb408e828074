"""The job that only measures the network between the hosts of another job."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from smdp_launch.checking.job import CheckedJob
from smdp_launch.errors import Refused
from smdp_launch.jobfile.model.spec import Batch, JobSpec, Local
from smdp_launch.jobfile.model.tracking import Tracking
from smdp_launch.jobfile.model.types import MAX_NAME

#: The probe takes about a minute. This is the limit of its cost.
MAX_RUN = 300
#: With it the entrypoint probes the network and exits.
_VARIABLE = "SMDP_NETWORK_ONLY"
_SUFFIX = "-probe"


def probe_job(job: CheckedJob, hosts: int | None = None) -> CheckedJob:
    """The job that probes the network of a job without errors: the same image, hosts and network, without data,
    checkpoints, and files of the script.

    Args:
        hosts: of a local run; None for the job's own number.

    Raises:
        JobFileRefused: the job has errors.
        Refused: it has one host only, or its containers have no entrypoint that probes.
    """
    spec, source = job.require()
    if spec.engine != "native":
        raise Refused(f"engine {spec.engine} runs in the containers of AWS, which cannot probe: use `engine: native`")
    if (hosts or spec.compute.instance_count) < 2:
        raise Refused(f"{spec.name} has one host, so it has no network between hosts: use two hosts or more")
    empty = source._replace(files=(), empty_folders=(), sha256=hashlib.sha256(b"").hexdigest())
    facts = replace(job.facts, source=empty) if job.facts is not None else None
    return replace(job, loaded=replace(job.loaded, spec=_probe_spec(spec)), facts=facts)


def _probe_spec(spec: JobSpec) -> JobSpec:
    short = {"max_run": min(MAX_RUN, spec.compute.max_run), "keep_alive": None, "retries": None}
    return spec.model_copy(
        update={
            "name": f"{spec.name[: MAX_NAME - len(_SUFFIX)].rstrip('-')}{_SUFFIX}",
            "compute": spec.compute.model_copy(update=short),
            "channels": {},
            "checkpoint": None,
            "environment": {**spec.environment, _VARIABLE: "1"},
            "metrics": {},
            "tracking": Tracking(),
            "batch": Batch() if spec.batch is not None else None,
            "local": Local(),
        }
    )
