"""The numbers of a run in the text format OpenMetrics 1.0, for Prometheus and other scrapers. Does no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from smdp_launch.run_metrics.run import PHASES, HostMetrics, RankMetrics, RunMetrics

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ENGINE_PHASES = ("wait_local", "wait_hosts", "wire", "copy", "reduce")
#: Sums of `timing` that are no phases: field, name of the metric, help.
_RANK_SUMS = (
    ("steps", "smdp_rank_steps", "Optimizer steps."),
    ("samples", "smdp_rank_samples", "Training samples that the loader delivered."),
    ("batches", "smdp_rank_batches", "Batches that the loader delivered."),
    ("checkpoints", "smdp_rank_checkpoints", "Saved checkpoints."),
    ("load_batches", "smdp_loader_batches", "Batches that the loader's processes made."),
    ("load_s", "smdp_loader_seconds", "Seconds of the loader's own work."),
    ("load_cpu_s", "smdp_loader_cpu_seconds", "Seconds of it on a processor."),
    ("load_queued_s", "smdp_loader_queued_seconds", "Seconds of it spent waiting for a processor."),
    ("load_bytes", "smdp_loader_read_bytes", "Bytes that the loader read."),
)
_HOST_SUMS = (
    ("cpu_s", "smdp_host_cpu_seconds", "Core-seconds that were busy on the host."),
    ("io_wait_s", "smdp_host_io_wait_seconds", "Core-seconds that waited for input and output."),
    ("workers_cpu_s", "smdp_host_workers_cpu_seconds", "Core-seconds of the workers' processes."),
    ("disk_read", "smdp_host_disk_read_bytes", "Bytes read from disks."),
    ("disk_written", "smdp_host_disk_written_bytes", "Bytes written to disks."),
    ("net_received", "smdp_host_network_received_bytes", "Bytes received."),
    ("net_sent", "smdp_host_network_sent_bytes", "Bytes sent."),
)
_HOST_LEVELS = (
    ("cores", "smdp_host_cores", "Processor cores."),
    ("memory_used", "smdp_host_memory_used_bytes", "Memory in use."),
    ("memory_total", "smdp_host_memory_total_bytes", "Memory of the host."),
    ("workers_memory", "smdp_host_workers_memory_bytes", "Memory of the workers' processes."),
    ("gpus", "smdp_host_gpus", "GPUs."),
    ("gpu_use", "smdp_host_gpu_use_ratio", "Mean use of the GPUs, 0 to 1."),
    ("gpu_memory_used", "smdp_host_gpu_memory_used_bytes", "GPU memory in use."),
    ("gpu_memory_total", "smdp_host_gpu_memory_total_bytes", "GPU memory of the host."),
)


@dataclass
class _Families:
    """Metric families in the order in which they are first added: the format wants the samples of a family together."""

    job: str
    lines: dict[str, list[str]] = field(default_factory=dict)

    def add(
        self, name: str, kind: Literal["counter", "gauge"], help_: str, value: float | None, **labels: str | int
    ) -> None:
        """Add a sample; nothing for None."""
        if value is None:
            return
        lines = self.lines.setdefault(name, [f"# TYPE {name} {kind}", f"# HELP {name} {_escaped(help_)}"])
        texts = ",".join(f'{key}="{_escaped(str(one))}"' for key, one in {"job": self.job, **labels}.items())
        lines.append(f"{name}{'_total' if kind == 'counter' else ''}{{{texts}}} {_number(value)}")


def openmetrics(run: RunMetrics, job: str) -> str:
    """The run's numbers as one exposition, which ends with ``# EOF``. Counters count from the job's start."""
    families = _Families(job)
    _run(families, run)
    for rank in sorted(run.ranks):
        _rank(families, run.ranks[rank])
    for host in sorted(run.hosts):
        _host(families, run.hosts[host])
    return "".join(f"{line}\n" for lines in families.lines.values() for line in lines) + "# EOF\n"


def _run(families: _Families, run: RunMetrics) -> None:
    for name, help_, value in (
        ("smdp_step", "Last step that rank 0 reported.", run.step),
        ("smdp_steps", "Steps that the run will take.", run.steps),
        ("smdp_steps_per_second", "Steps in a second, of the last minute.", run.steps_per_second),
        ("smdp_samples_per_second", "Samples in a second of all workers, of the last minute.", run.samples_per_second),
        ("smdp_left_seconds", "Seconds that the remaining steps take at the current rate.", run.seconds_left),
        ("smdp_hanging", "1 if a host has reported ranks that hang, else 0.", _hanging(run)),
        ("smdp_workers", "Workers of the job.", run.world_size),
        ("smdp_last_event_timestamp_seconds", "Time of the last event, since 1970.", run.last),
    ):
        families.add(name, "gauge", help_, value)
    for metric, series in run.metrics.items():
        value = float(series.not_finite) if series.not_finite is not None else series.last
        families.add("smdp_metric", "gauge", "Last value that the script reported with a step.", value, metric=metric)
    for metric, value in _finite(run.results).items():
        families.add("smdp_result", "gauge", "A number of the run's result.", value, metric=metric)
    exits = [one for one in run.moments if one.name == "worker_exit"]
    if run.world_size is not None or exits:
        families.add("smdp_worker_failures", "counter", "Workers that failed.", len(exits))


def _hanging(run: RunMetrics) -> int | None:
    return None if run.last is None else int(run.hang is not None)


def _finite(fields: Mapping[str, object]) -> dict[str, float]:
    left_out = {"smdp_event", "event", "time", "rank", "host"}
    return {
        name: float(value)
        for name, value in fields.items()
        if name not in left_out
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def _rank(families: _Families, one: RankMetrics) -> None:
    labels: dict[str, str | int] = {"rank": one.rank, "host": one.host}
    timing = one.timing.total()
    if timing is not None:
        for phase in PHASES:
            seconds = timing.values.get(f"{phase}_s")
            families.add(
                "smdp_phase_seconds", "counter", "Time of the training thread.", seconds, phase=phase, **labels
            )
        for name, metric, help_ in _RANK_SUMS:
            families.add(metric, "counter", help_, timing.values.get(name), **labels)
    families.add("smdp_loader_workers", "gauge", "Processes of the training loader.", one.load_workers, **labels)
    families.add("smdp_gpu_memory_peak_bytes", "gauge", "Most memory that torch allocated.", one.gpu_memory, **labels)
    engine = one.engine.total()
    if engine is not None:
        for name, help_ in (("operations", "Exchanges."), ("bytes", "Bytes of the exchanges.")):
            families.add(f"smdp_engine_{name}", "counter", help_, engine.values.get(name), **labels)
        for phase in _ENGINE_PHASES:
            seconds = engine.values.get(f"{phase}_s")
            families.add("smdp_engine_seconds", "counter", "Seconds of the exchanges.", seconds, phase=phase, **labels)
    for other, seconds in sorted(one.late.items()):
        families.add("smdp_late_seconds", "counter", "Seconds waited for a rank.", seconds, late_rank=other, **labels)


def _host(families: _Families, one: HostMetrics) -> None:
    total = one.resources.total()
    values = total.values if total is not None else {}
    for name, metric, help_ in _HOST_SUMS:
        families.add(metric, "counter", help_, values.get(name), host=one.name)
    for name, metric, help_ in _HOST_LEVELS:
        families.add(metric, "gauge", help_, one.last.get(name), host=one.name)
    for name, value in values.items():
        if name.startswith("channel_") and name.endswith("_bytes"):
            channel = name[len("channel_") : -len("_bytes")]
            labels = {"host": one.name, "channel": channel, "mode": one.modes.get(channel, "")}
            families.add("smdp_channel_read_bytes", "counter", "Bytes read from a channel.", value, **labels)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1 << 53 else repr(float(value))
