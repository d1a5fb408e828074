"""The inputs of a scaling study, from flags, job file, run, catalogue and defaults; each value with its origin."""

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
from smdp_launch.request.environment import engine_variables
from smdp_launch.scaling.measured import Measured
from smdp_launch.scaling.parsing import LONGEST_STEP
from smdp_launch.scaling.question import SCHEDULE_OPTIONS
from smdp_launch.scaling.traces import MIB, TRACES
from smdp_launch.scaling.workload import (
    BACKWARD_SHARE,
    BUCKET_MIB,
    ELEMENT_BYTES,
    Assumption,
    Bucket,
    Origin,
    Workload,
    even_buckets,
    trace_buckets,
)
from smdp_launch.units import count, size

HOSTS = (1, 2, 4, 8, 16)
#: Models with known gradients and a published step time.
MODELS = tuple(sorted(published_steps()))
_MOST_BUCKETS = 100_000
_GPU_TYPES = "such as ml.p4d.24xlarge (`smdp-launch catalog instances` lists all)"


class MissingInput(SmdpError):
    """An input of the model is not known. The message names the option that sets it."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class Flags:
    """The values of the command's flags; None or empty for flags that are not set.

    Args:
        step_s: seconds by instance type; the key None is for every type.
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
        """Whether values are missing that a run can supply."""
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
    """The instance type with GPUs of that name.

    Raises:
        ValueError: there is no such type, or it has no GPUs.
    """
    type_ = instance(name)
    if type_ is not None:
        return type_
    if name in known_instance_types():
        raise ValueError(f"the catalog knows no GPUs of {name}: choose another, {_GPU_TYPES}")
    match = closest(name, [one.name for one in instances()])
    help_ = f"did you mean {match}?" if match else f"choose one {_GPU_TYPES}"
    raise ValueError(f"there is no instance type {name}: {help_}")


def _types(spec: JobSpec, flags: Flags) -> tuple[Instance, ...]:
    if flags.instance_types:
        return tuple(map(gpu_instance, flags.instance_types))
    of_job = instance(spec.compute.instance_type)
    if of_job is None:
        raise MissingInput(
            f"compute.instance_type is {spec.compute.instance_type}, and the catalog knows no GPUs of it: "
            f"add --instance-type with a type that has GPUs, {_GPU_TYPES}"
        )
    return (of_job,)


def inputs(spec: JobSpec, flags: Flags, run: Measured | None = None) -> Inputs:
    """Combine flags, job file, measurements and defaults, in this order of precedence.

    Args:
        run: measurements of a run of this job.

    Raises:
        MissingInput: the GPUs, the seconds of a step, or the bytes of its gradients are not known.
    """
    types = _types(spec, flags)
    steps, of_steps, warnings = _steps(types, flags, run, spec)
    buckets, of_buckets = _buckets(flags, run)
    share = flags.backward_share or BACKWARD_SHARE
    batch, of_batch = _batch(spec, flags, run)
    options, of_options = _options(spec, flags)
    workload = Workload(steps, buckets, flags.dtype or "float32", share, batch, flags.samples, options)
    backward = Assumption(
        "backward pass",
        f"{share:.3g} of a step; gradients become ready evenly over it",
        Origin.FLAG if flags.backward_share else Origin.DEFAULT,
        "" if flags.backward_share else "it takes twice as long as the forward pass",
    )
    return Inputs(
        flags.hosts or tuple(sorted({*HOSTS, spec.compute.instance_count})),
        types,
        workload,
        (*of_steps, backward, of_buckets, *of_batch, *of_options),
        tuple(warnings),
    )


def _steps(
    types: Sequence[Instance], flags: Flags, run: Measured | None, spec: JobSpec
) -> tuple[dict[str, float], list[Assumption], list[str]]:
    """The seconds of a step by instance type, the assumptions about them, and warnings."""
    published = published_steps().get(flags.trace or "")
    steps: dict[str, float] = {}
    names_by_step: dict[tuple[str, Origin, str], list[str]] = {}
    for one in types:
        seconds, origin, source = _step(one, flags, run, published)
        steps[one.name] = seconds
        step = (f"{seconds * 1000:.4g} ms on one GPU, without exchange", origin, source)
        names_by_step.setdefault(step, []).append(one.name)
    assumptions = [
        Assumption("step" if len(names_by_step) == 1 else f"step of {', '.join(names)}", *step)
        for step, names in names_by_step.items()
    ]
    return steps, assumptions, _warnings(types, flags, run, published, spec)


def _step(
    type_: Instance, flags: Flags, run: Measured | None, published: PublishedStep | None
) -> tuple[float, Origin, str]:
    if type_.name in flags.step_s or None in flags.step_s:
        name = type_.name if type_.name in flags.step_s else None
        return flags.step_s[name], Origin.FLAG, "--step-time"
    if flags.step_s:
        raise MissingInput(f"there is no --step-time for {type_.name}: add --step-time {type_.name}=SECONDS")
    if run is None and published is not None:
        return published.seconds, Origin.CATALOGUE, f"one {published.gpu}, {published.source}"
    if run is None:
        raise MissingInput(
            "the time of a step is not known: add --step-time SECONDS for one GPU and without exchange, "
            "or report steps in the script with progress.step (docs/reference/events.md) and launch the job"
        )
    if run.seconds > LONGEST_STEP:
        raise MissingInput(
            f"a step of {run.run.job} took {run.seconds:g} s; the model allows at most {LONGEST_STEP:g} s"
        )
    skipped = f" after {count(run.warm_up, 'step')} of warm-up" if run.warm_up else ""
    return run.seconds, Origin.RUN, f"{run.run.job} on {run.where}: median of {count(run.steps, 'step')}{skipped}"


def _warnings(
    types: Sequence[Instance], flags: Flags, run: Measured | None, published: PublishedStep | None, spec: JobSpec
) -> list[str]:
    if run is not None and not flags.step_s:
        if run.run.instance_type is None:
            return [
                f"the step of {run.run.job} was measured on local CPUs, so it is not valid for GPUs; "
                "add --step-time with the seconds of a step on the GPU"
            ]
        base, warnings = instance(run.run.instance_type), []
        if run.run.ranks != 1:
            warnings.append(f"the step of {run.run.job} includes its exchange, so the modelled steps are too long")
    else:
        base, warnings = instance(spec.compute.instance_type), []
    gpu = base.gpu if base is not None else None
    if published is not None and run is None and not flags.step_s:
        gpu = published.gpu
    others = [one.name for one in types if one.gpu != gpu and one.name not in flags.step_s]
    if others and gpu is not None:
        warnings.append(
            f"the step of one {gpu} is used for {', '.join(others)} too: "
            f"add --step-time {others[0]}=SECONDS for each type"
        )
    return warnings


def _buckets(flags: Flags, run: Measured | None) -> tuple[tuple[Bucket, ...], Assumption]:
    dtype, bucket = flags.dtype or "float32", flags.bucket_mib or BUCKET_MIB
    total, origin, source = _gradients(flags, run, dtype)
    if total is None:
        buckets = trace_buckets(TRACES[flags.trace or ""](), dtype, bucket)
    else:
        if total / (bucket * MIB) > _MOST_BUCKETS:
            raise MissingInput(
                f"{size(total)} in buckets of {bucket} MiB are too many buckets: use a larger --bucket-mib"
            )
        buckets = even_buckets(total, bucket * MIB)
    whole = sum(one.bytes for one in buckets)
    value = f"{size(whole)} of {dtype} in {count(len(buckets), 'bucket')} of {bucket} MiB"
    return buckets, Assumption("gradients", value, origin, source)


def _gradients(flags: Flags, run: Measured | None, dtype: str) -> tuple[int | None, Origin, str]:
    """The bytes of the gradients, with their origin and source; None bytes for a trace."""
    if flags.gradient_bytes is not None:
        return flags.gradient_bytes, Origin.FLAG, "--gradient-bytes"
    if flags.parameters is not None:
        return flags.parameters * ELEMENT_BYTES[dtype], Origin.FLAG, "--parameters"
    if flags.trace is not None:
        return None, Origin.CATALOGUE, f"the parameters of {flags.trace}, in reverse order"
    if run is not None and run.gradient_bytes is not None:
        return run.gradient_bytes, Origin.RUN, f"the engine's counters of {run.run.job}, all exchanges over all steps"
    raise MissingInput(
        "the size of the gradients is not known: add --parameters (such as 335M), --gradient-bytes or --trace, "
        "or launch the job with the environment variable SMDP_COUNTERS_S=10"
    )


def _batch(spec: JobSpec, flags: Flags, run: Measured | None) -> tuple[int | None, list[Assumption]]:
    published = published_steps().get(flags.trace or "")
    constant = "samples per step on each GPU, for any number of hosts: the global batch grows with the hosts"
    assumptions: list[Assumption] = []
    batch, origin, source = flags.batch, Origin.FLAG, "--batch"
    if batch is None and published is not None and run is None and not flags.step_s:
        batch, origin, source = published.samples, Origin.CATALOGUE, published.source
    if batch is None:
        batch, origin, source = worker_batch(spec), Origin.JOB_FILE, "batch"
        if batch is not None and spec.batch is not None and spec.batch.global_size is not None:
            source = f"batch.global on {count(spec.compute.instance_count, 'host')}"
    if batch is not None:
        assumptions.append(Assumption("batch", f"{batch} {constant}", origin, source))
    if flags.samples is not None:
        assumptions.append(Assumption("epoch", f"{flags.samples:,} samples", Origin.FLAG, "--samples"))
    return batch, assumptions


def _options(spec: JobSpec, flags: Flags) -> tuple[dict[str, str], list[Assumption]]:
    """The engine options that change a schedule, and the assumptions about them."""
    variables = {**spec.environment, **engine_variables(spec.engine_options)}
    of_job = {name: value for name, value in sorted(variables.items()) if name in SCHEDULE_OPTIONS}
    of_job = {name: value for name, value in of_job.items() if name not in flags.options}
    assumptions = [Assumption("engine option", f"{name}={value}", Origin.JOB_FILE) for name, value in of_job.items()]
    assumptions += [
        Assumption("engine option", f"{name}={value}", Origin.FLAG, "--option") for name, value in flags.options.items()
    ]
    return {**of_job, **flags.options}, assumptions
