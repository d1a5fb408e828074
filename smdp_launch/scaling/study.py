"""A study of scale: the questions for all types, schedules and host counts, and the report of the answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from smdp_launch.catalog.exchange import checked, efa_rate, memory_rate, rate_within_host, ring_rate
from smdp_launch.catalog.instances import Instance
from smdp_launch.catalog.tables import table
from smdp_launch.scaling.inputs import Inputs
from smdp_launch.scaling.question import (
    ENGINE,
    OF_THE_MEASURED_MACHINE,
    RING,
    SCHEDULES,
    SMDISTRIBUTED,
    Exchange,
    Method,
    Question,
    Setting,
    cores,
    default_options,
    exchange,
)
from smdp_launch.scaling.report import Hosts, Report
from smdp_launch.scaling.verdict import Point, Step, point, stop
from smdp_launch.scaling.workload import Assumption, Origin
from smdp_launch.units import count

#: Answers by the text of their questions: when each bucket was done.
Answers = Mapping[str, Sequence[float]]

#: Of the engine, what its costs are told of.
_ENGINE_COSTS = ("send_byte", "receive_byte", "copy_byte", "fold_byte", "send_frame", "receive_frame", "link_latency")


@dataclass(frozen=True)
class Price:
    """USD of one host an hour."""

    usd: float
    source: str


@dataclass(frozen=True)
class Study:
    """Args:
    costs_file: the name of the file that `Setting.file` is from.
    prices: by instance type.
    price_hint: how to give prices, where none are known.
    worth: the part of their work that added hosts must do to pay.
    """

    job_file: str
    inputs: Inputs
    setting: Setting
    worth: float
    prices: Mapping[str, Price]
    costs_file: str | None = None
    price_hint: str | None = None

    def exchanges(self) -> list[tuple[Instance, Exchange]]:
        """Of every row."""
        return [(one, self._exchange(one, name, hosts)) for one in self.inputs.types for name, hosts in self._rows()]

    def questions(self) -> list[Question]:
        """All of them; several rows may have one in common."""
        checks = (each for _, *pair in self._checks() for each in pair)
        return [one.question for one in (*(one for _, one in self.exchanges()), *checks)]

    def report(self, answers: Answers) -> Report:
        return Report(
            self.job_file,
            self.inputs.workload,
            tuple(self._hosts(one, answers) for one in self.inputs.types),
            self.worth,
            (*self.inputs.assumptions, *self._assumptions(answers)),
            self.inputs.warnings,
            self.price_hint,
        )

    def _rows(self) -> Iterator[tuple[str, int]]:
        return ((name, hosts) for name in SCHEDULES for hosts in self.inputs.hosts)

    def _exchange(self, found: Instance, schedule: str, hosts: int, method: Method | None = None) -> Exchange:
        return exchange(self.inputs.workload, found, schedule, hosts, self.setting, method=method)

    def _hosts(self, found: Instance, answers: Answers) -> Hosts:
        work, price = self.inputs.workload, self.prices.get(found.name)
        usd = price.usd if price is not None else None
        step = Step(work.step_s[found.name], work.backward_share, work.batch, work.samples, usd)
        points = {
            name: tuple(self._point(found, name, hosts, step, answers) for hosts in self.inputs.hosts)
            for name in SCHEDULES
        }
        stops = {name: stop(points[name], self.worth) for name in SCHEDULES}
        return Hosts(found.name, found.gpus, found.gpu, step.seconds, usd, points, stops)

    def _point(self, found: Instance, schedule: str, hosts: int, step: Step, answers: Answers) -> Point:
        asked = self._exchange(found, schedule, hosts)
        end = asked.end_s(answers[asked.question.text()])
        return point(step, hosts, found.gpus, end, every_bucket=asked.method is not Method.ONE_BUCKET)

    def _checks(self) -> Iterator[tuple[Instance, Exchange, Exchange]]:
        """The most hosts of which every bucket is modelled, in both ways, where others are modelled by one bucket."""
        for found in self.inputs.types:
            for schedule in (ENGINE, SMDISTRIBUTED):
                rows = [self._exchange(found, schedule, hosts) for hosts in self.inputs.hosts]
                whole = [one for one in rows if one.method is Method.EVERY_BUCKET]
                if whole and len(whole) < len(rows):
                    hosts = whole[-1].hosts
                    yield found, whole[-1], self._exchange(found, schedule, hosts, Method.ONE_BUCKET)

    def _deviation(self, answers: Answers) -> str:
        """How far a step that is modelled by one bucket is from one of which each bucket is, where both are known."""
        work, told = self.inputs.workload, []
        for found, whole, short in self._checks():
            step = Step(work.step_s[found.name], work.backward_share, None, None, None)
            seconds = [
                point(step, one.hosts, found.gpus, one.end_s(answers[one.question.text()]), every_bucket=True).step_s
                for one in (whole, short)
            ]
            told.append((abs(seconds[1] / seconds[0] - 1), whole.hosts))
        if not told:
            return ""
        worst, hosts = max(told)
        return f"; on {count(hosts, 'host')} both ways differ by {100 * worst:.1f} % of a step at most"

    # -- What is told ---------------------------------------------------------------------------------------

    def _assumptions(self, answers: Answers) -> Iterator[Assumption]:
        for found in self.inputs.types:
            yield from self._of_type(found)
        yield from self._of_engine()
        yield Assumption(
            SMDISTRIBUTED,
            "the engine's schedule; GPUs add up and copy within a host, its processors what comes from the others; "
            "over EFA a byte costs the kernel nothing, a message and its latency what they cost the engine",
            Origin.DEFAULT,
            "AWS's library itself is not modelled",
        )
        yield Assumption(
            RING,
            "one ring of all GPUs, one bucket after the other",
            Origin.DEFAULT,
            "NCCL's trees, which may be faster on many GPUs, are not modelled",
        )
        yield from self._overrides()
        yield from self._shortened(answers)
        yield Assumption(
            "not modelled",
            "ranks that are late, reading of data, checkpoints, other traffic, copies between GPU and host",
            Origin.DEFAULT,
        )

    def _of_type(self, found: Instance) -> Iterator[Assumption]:
        day = table("instances")["checked"]
        hardware = f"{found.gpus} x {found.gpu}, {found.network_gbit} Gbit/s, {cores(found)} cores"
        yield Assumption("host", f"{found.name}: {hardware}", Origin.CATALOGUE, f"instances, {day}")
        memory = memory_rate(found)
        if memory is not None and "memory_rate" in self.setting.defaults:
            value = f"{found.name}: {memory.bytes_per_second / 1e9:.3g} GB/s that copies and sums read"
            yield Assumption("memory", value, Origin.CATALOGUE, memory.source)
        for name, threads in default_options(found, self.setting).items():
            if name not in (self.inputs.workload.options or {}):
                yield Assumption(
                    "engine option", f"{found.name}: {name}={threads}", Origin.DEFAULT, "as the engine has it"
                )
        efa = efa_rate(found)
        if efa is not None:
            value = f"{found.name}: {efa.bytes_per_second / 1e9:.3g} GB/s between hosts, of {SMDISTRIBUTED}"
            yield Assumption("EFA", value, Origin.CATALOGUE, f"{efa.source}, read {checked()}")
        by_rate: dict[float, list[str]] = {}
        for hosts in self.inputs.hosts:
            if hosts > 1:
                by_rate.setdefault(ring_rate(found, hosts).bytes_per_second, []).append(str(hosts))
        rates = ", ".join(f"{rate / 1e9:.3g} GB/s on {'/'.join(hosts)}" for rate, hosts in by_rate.items())
        within = rate_within_host(found)
        if rates:
            source = f"{ring_rate(found, max(self.inputs.hosts)).source}, read {checked()}"
            yield Assumption("ring's rate", f"{found.name}: {rates} hosts", Origin.CATALOGUE, source)
        value = f"{found.name}: {within.bytes_per_second / 1e9:.3g} GB/s from GPU to GPU of a host, of the ring"
        yield Assumption("ring's rate", value, Origin.CATALOGUE, f"{within.source}, read {checked()}")
        price = self.prices.get(found.name)
        if price is not None:
            yield Assumption("price", f"{found.name}: {price.usd:g} USD an hour", Origin.PRICES, price.source)

    def _of_engine(self) -> Iterator[Assumption]:
        measured = self.setting.measured()
        used = {**self.setting.defaults, **measured}
        value = "over TCP; seconds: " + ", ".join(f"{name} {used[name]:.3g}" for name in _ENGINE_COSTS if name in used)
        if not measured:
            yield Assumption(ENGINE, value, Origin.DEFAULT, "round figures of the model, of no machine in particular")
            return
        source = f"{self.costs_file}, without {', '.join(sorted(OF_THE_MEASURED_MACHINE))}: those are the host's"
        yield Assumption(ENGINE, value, Origin.FLAG, f"--costs {source}")

    def _overrides(self) -> Iterator[Assumption]:
        setting = self.setting
        for name, value in setting.everywhere.items():
            yield Assumption("cost", f"{name}={value:g} of every schedule", Origin.FLAG, "--cost")
        for schedule, costs in setting.of_schedule.items():
            for name, value in costs.items():
                yield Assumption("cost", f"{name}={value:g} of {schedule}", Origin.FLAG, "--cost")

    def _shortened(self, answers: Answers) -> Iterator[Assumption]:
        short = {one.hosts for _, one in self.exchanges() if one.method is Method.ONE_BUCKET}
        if short:
            value = f"on {min(short)} hosts and more one bucket stands for all, in proportion to their bytes"
            source = "every bucket would take minutes"
            yield Assumption("shortened", value + self._deviation(answers), Origin.DEFAULT, source)
