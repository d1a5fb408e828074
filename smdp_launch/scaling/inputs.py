"""What a study of scale rests on, from flags, job file, run, catalogue and defaults; each value with its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from smdp_launch.catalog.exchange import PublishedStep, published_steps
from smdp_launch.catalog.instances import Instance, instance, instances
from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.diagnostics import closest
from smdp_launch.errors import ExitCode, SmdpError
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.batch import worker_batch
from smdp_launch.request.build import engine_variables
from smdp_launch.scaling.measured import Measured
from smdp_launch.scaling.parsing import LONGEST_STEP
from smdp_launch.scaling.question import SCHEDULE_OPTIONS
from smdp_launch.scaling.traces import TRACES
from smdp_launch.scaling.workload import (
    BACKWARD_SHARE,
    BUCKET_MIB,
    ELEMENT_BYTES,
    MIB,
    Assumption,
    Bucket,
    Origin,
    Workload,
    even_buckets,
    trace_buckets,
)
from smdp_launch.units import count, size

HOSTS = (1, 2, 4, 8, 16)
#: Models whose gradients and published step are known.
MODELS = tuple(sorted(published_steps()))
_MOST_BUCKETS = 100_000


class NotKnown(SmdpError):
    """Something that the model needs, and how it can be given."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class Given:
    """What the flags say; None and nothing for what they do not.

    Args:
        step_s: by instance type; under None for every type.
    """

    hosts: tuple[int, ...] | None = None
    instance_types: tuple[str, ...] = ()
    step_s: Mapping[str | None, float] = field(default_factory=dict)
    trace: str | None = None
    gradient_bytes: int | None = None
    parameters: int | None = None
    dtype: str | None = None
    bucket_mib: int | None = None
    backward_share: float | None = None
    batch: int | None = None
    samples: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_run(self) -> bool:
        """Whether something is left that a run can say."""
        no_step = not self.step_s and self.trace is None
        return no_step or (self.trace is None and self.gradient_bytes is None and self.parameters is None)


@dataclass(frozen=True)
class Inputs:
    hosts: tuple[int, ...]
    types: tuple[Instance, ...]
    workload: Workload
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]


def gpu_instance(name: str) -> Instance:
    """Raises:
    ValueError: there is no such type, or it has no GPUs.
    """
    found = instance(name)
    if found is not None:
        return found
    known = [one.name for one in instances()]
    if name in known_instance_types():
        raise ValueError(f"{name} is no type with GPUs that the catalogue knows: one of {', '.join(known)}")
    match = closest(name, known)
    raise ValueError(f"there is no instance type {name}: " + (f"did you mean {match}?" if match else ", ".join(known)))


def inputs(spec: JobSpec, given: Given, run: Measured | None = None) -> Inputs:
    """Args:
    run: what was measured of this job, for what neither flags nor job file say.

    Raises:
        NotKnown: the seconds of a step, or the bytes of its gradients.
    """
    types = tuple(gpu_instance(name) for name in given.instance_types or (spec.compute.instance_type,))
    steps, told, warnings = _steps(types, given, run, spec)
    buckets, told_buckets = _buckets(given, run)
    share = given.backward_share or BACKWARD_SHARE
    batch, told_batch = _batch(spec, given, run)
    options, told_options = _options(spec, given)
    workload = Workload(steps, buckets, given.dtype or "float32", share, batch, given.samples, options)
    backward = Assumption(
        "backward pass",
        f"{share:.3g} of a step; gradients become ready evenly over it",
        Origin.FLAG if given.backward_share else Origin.DEFAULT,
        "" if given.backward_share else "it costs twice the forward pass",
    )
    return Inputs(
        given.hosts or tuple(sorted({*HOSTS, spec.compute.instance_count})),
        types,
        workload,
        (*told, backward, told_buckets, *told_batch, *told_options),
        tuple(warnings),
    )


def _steps(
    types: Sequence[Instance], given: Given, run: Measured | None, spec: JobSpec
) -> tuple[dict[str, float], list[Assumption], list[str]]:
    """The seconds of a step by type, what is told of them, and what to be warned of."""
    published = published_steps().get(given.trace or "")
    steps: dict[str, float] = {}
    told: dict[tuple[str, Origin, str], list[str]] = {}
    for one in types:
        seconds, origin, source = _step(one, given, run, published)
        steps[one.name] = seconds
        told.setdefault((f"{seconds * 1000:.4g} ms on one GPU, without exchange", origin, source), []).append(one.name)
    assumptions = [
        Assumption("step" if len(told) == 1 else f"step of {', '.join(names)}", *what) for what, names in told.items()
    ]
    return steps, assumptions, _warnings(types, given, run, published, spec)


def _step(
    found: Instance, given: Given, run: Measured | None, published: PublishedStep | None
) -> tuple[float, Origin, str]:
    if found.name in given.step_s or None in given.step_s:
        name = found.name if found.name in given.step_s else None
        return given.step_s[name], Origin.FLAG, "--step-time"
    if given.step_s:
        raise NotKnown(f"no --step-time is for {found.name}: add --step-time {found.name}=SECONDS")
    if run is None and published is not None:
        return published.seconds, Origin.CATALOGUE, f"one {published.gpu}, {published.source}"
    if run is None:
        raise NotKnown(
            "no run of this job says how long a step takes: give --step-time SECONDS, of one GPU and without exchange, "
            "or report steps in the script with progress.step (docs/events.md) and launch it"
        )
    if run.seconds > LONGEST_STEP:
        raise NotKnown(f"a step of {run.run.job} took {run.seconds:g} s: at most {LONGEST_STEP:g} s can be modelled")
    skipped = f" after {count(run.warm_up, 'step')} of warm-up" if run.warm_up else ""
    return run.seconds, Origin.RUN, f"{run.run.job} on {run.where}: median of {count(run.steps, 'step')}{skipped}"


def _warnings(
    types: Sequence[Instance], given: Given, run: Measured | None, published: PublishedStep | None, spec: JobSpec
) -> list[str]:
    if run is not None and not given.step_s:
        if run.run.instance_type is None:
            return [
                f"a step of {run.run.job} was measured on CPUs of this machine: it says nothing about GPUs; "
                "give --step-time with the seconds of a step on the GPU"
            ]
        base, warnings = instance(run.run.instance_type), []
        if run.run.ranks != 1:
            why = "includes what the exchange of that run took, so that the modelled steps are too long"
            warnings.append(f"the step of {run.run.job} {why}")
    else:
        base, warnings = instance(spec.compute.instance_type), []
    gpu = base.gpu if base is not None else None
    if published is not None and run is None and not given.step_s:
        gpu = published.gpu
    others = [one.name for one in types if one.gpu != gpu and one.name not in given.step_s]
    if others and gpu is not None:
        warnings.append(
            f"the step of one {gpu} is taken for {', '.join(others)} too: "
            f"give --step-time {others[0]}=SECONDS for each type"
        )
    return warnings


def _buckets(given: Given, run: Measured | None) -> tuple[tuple[Bucket, ...], Assumption]:
    dtype, bucket = given.dtype or "float32", given.bucket_mib or BUCKET_MIB
    total, origin, source = _gradients(given, run, dtype)
    if total is None:
        made = trace_buckets(TRACES[given.trace or ""](), dtype, bucket)
    else:
        if total / (bucket * MIB) > _MOST_BUCKETS:
            raise NotKnown(f"{size(total)} in buckets of {bucket} MiB are too many buckets: give a larger --bucket-mib")
        made = even_buckets(total, bucket * MIB)
    whole = sum(one.bytes for one in made)
    value = f"{size(whole)} of {dtype} in {count(len(made), 'bucket')} that are filled to {bucket} MiB"
    return made, Assumption("gradients", value, origin, source)


def _gradients(given: Given, run: Measured | None, dtype: str) -> tuple[int | None, Origin, str]:
    """Bytes, None for those of a trace."""
    if given.gradient_bytes is not None:
        return given.gradient_bytes, Origin.FLAG, "--gradient-bytes"
    if given.parameters is not None:
        return given.parameters * ELEMENT_BYTES[dtype], Origin.FLAG, "--parameters"
    if given.trace is not None:
        return None, Origin.CATALOGUE, f"the parameters of {given.trace}, in reverse order"
    if run is not None and run.gradient_bytes is not None:
        return run.gradient_bytes, Origin.RUN, f"the engine's counters of {run.run.job}, all exchanges over all steps"
    raise NotKnown(
        "how many bytes of gradients a step exchanges is not known: give --parameters (such as 335M), "
        "--gradient-bytes or --trace, or launch the job with the environment variable SMDP_COUNTERS_S=10"
    )


def _batch(spec: JobSpec, given: Given, run: Measured | None) -> tuple[int | None, list[Assumption]]:
    published = published_steps().get(given.trace or "")
    kept = "samples a step on each GPU, on any number of hosts: the global batch grows with them"
    told: list[Assumption] = []
    batch, origin, source = given.batch, Origin.FLAG, "--batch"
    if batch is None and published is not None and run is None and not given.step_s:
        batch, origin, source = published.samples, Origin.CATALOGUE, published.source
    if batch is None:
        batch, origin, source = worker_batch(spec), Origin.JOB_FILE, "batch"
        if batch is not None and spec.batch is not None and spec.batch.global_size is not None:
            source = f"batch.global on {count(spec.compute.instance_count, 'host')}"
    if batch is not None:
        told.append(Assumption("batch", f"{batch} {kept}", origin, source))
    if given.samples is not None:
        told.append(Assumption("epoch", f"{given.samples:,} samples", Origin.FLAG, "--samples"))
    return batch, told


def _options(spec: JobSpec, given: Given) -> tuple[dict[str, str], list[Assumption]]:
    """Those of the engine that change a schedule."""
    variables = {**spec.environment, **engine_variables(spec.engine_options)}
    of_job = {name: value for name, value in sorted(variables.items()) if name in SCHEDULE_OPTIONS}
    of_job = {name: value for name, value in of_job.items() if name not in given.options}
    told = [Assumption("engine option", f"{name}={value}", Origin.JOB_FILE) for name, value in of_job.items()]
    of_flags = given.options.items()
    told += [Assumption("engine option", f"{name}={value}", Origin.FLAG, "--option") for name, value in of_flags]
    return {**of_job, **given.options}, told
