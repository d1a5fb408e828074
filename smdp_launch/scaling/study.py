"""A scaling study: the questions for all types, schedules and host counts, and the report from the answers.

Does no I/O.
"""

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

#: The seconds at which each bucket is done, by the text of the question.
Answers = Mapping[str, Sequence[float]]

#: The costs of the engine that the report lists.
_ENGINE_COSTS = ("send_byte", "receive_byte", "copy_byte", "fold_byte", "send_frame", "receive_frame", "link_latency")


@dataclass(frozen=True)
class Price:
    """USD per hour of one host."""

    usd: float
    source: str


@dataclass(frozen=True)
class Study:
    """A scaling study.

    Args:
        worth: the share of their work that added hosts must do to pay.
        prices: by instance type.
        costs_file: the name of the file of ``Setting.file``.
        price_hint: how to set prices, if none are known.
    """

    job_file: str
    inputs: Inputs
    setting: Setting
    worth: float
    prices: Mapping[str, Price]
    costs_file: str | None = None
    price_hint: str | None = None

    def exchanges(self) -> list[tuple[Instance, Exchange]]:
        """The exchange of every row."""
        return [(one, self._exchange(one, name, hosts)) for one in self.inputs.types for name, hosts in self._rows()]

    def questions(self) -> list[Question]:
        """The questions of all rows and checks; some of them may be equal."""
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

    def _exchange(self, type_: Instance, schedule: str, hosts: int, method: Method | None = None) -> Exchange:
        return exchange(self.inputs.workload, type_, schedule, hosts, self.setting, method=method)

    def _hosts(self, type_: Instance, answers: Answers) -> Hosts:
        work, price = self.inputs.workload, self.prices.get(type_.name)
        usd = price.usd if price is not None else None
        step = Step(work.step_s[type_.name], work.backward_share, work.batch, work.samples, usd)
        points = {
            name: tuple(self._point(type_, name, hosts, step, answers) for hosts in self.inputs.hosts)
            for name in SCHEDULES
        }
        stops = {name: stop(points[name], self.worth) for name in SCHEDULES}
        return Hosts(type_.name, type_.gpus, type_.gpu, step.seconds, usd, points, stops)

    def _point(self, type_: Instance, schedule: str, hosts: int, step: Step, answers: Answers) -> Point:
        exchange_ = self._exchange(type_, schedule, hosts)
        end = exchange_.end_s(answers[exchange_.question.text()])
        return point(step, hosts, type_.gpus, end, every_bucket=exchange_.method is not Method.ONE_BUCKET)

    def _checks(self) -> Iterator[tuple[Instance, Exchange, Exchange]]:
        """For the largest number of hosts with every bucket modelled: the exchange by that method, and by one bucket.

        Empty if one method is used for all rows.
        """
        for type_ in self.inputs.types:
            for schedule in (ENGINE, SMDISTRIBUTED):
                rows = [self._exchange(type_, schedule, hosts) for hosts in self.inputs.hosts]
                whole = [one for one in rows if one.method is Method.EVERY_BUCKET]
                if whole and len(whole) < len(rows):
                    hosts = whole[-1].hosts
                    yield type_, whole[-1], self._exchange(type_, schedule, hosts, Method.ONE_BUCKET)

    def _deviation(self, answers: Answers) -> str:
        """The largest difference of a step between the methods, as text; empty without checks."""
        work, deviations = self.inputs.workload, []
        for type_, whole, short in self._checks():
            step = Step(work.step_s[type_.name], work.backward_share, None, None, None)
            seconds = [
                point(step, one.hosts, type_.gpus, one.end_s(answers[one.question.text()]), every_bucket=True).step_s
                for one in (whole, short)
            ]
            deviations.append((abs(seconds[1] / seconds[0] - 1), whole.hosts))
        if not deviations:
            return ""
        worst, hosts = max(deviations)
        return f"; on {count(hosts, 'host')} this differs by at most {100 * worst:.1f} % of a step from all buckets"

    # -- Assumptions ------------------------------------------------------------------------------------------

    def _assumptions(self, answers: Answers) -> Iterator[Assumption]:
        for type_ in self.inputs.types:
            yield from self._of_type(type_)
        yield from self._of_engine()
        yield Assumption(
            SMDISTRIBUTED,
            "the engine's schedule; GPUs add and copy within a host, processors add the data of other hosts; "
            "over EFA bytes cost no CPU time, messages and latency cost the same as with the engine",
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
            "slow ranks, reading of data, checkpoints, other traffic, copies between GPU and host",
            Origin.DEFAULT,
        )

    def _of_type(self, type_: Instance) -> Iterator[Assumption]:
        day = table("instances")["checked"]
        hardware = f"{type_.gpus} x {type_.gpu}, {type_.network_gbit} Gbit/s, {cores(type_)} cores"
        yield Assumption("host", f"{type_.name}: {hardware}", Origin.CATALOGUE, f"instances, {day}")
        memory = memory_rate(type_)
        if memory is not None and "memory_rate" in self.setting.defaults:
            value = f"{type_.name}: {memory.bytes_per_second / 1e9:.3g} GB/s for copies and sums"
            yield Assumption("memory", value, Origin.CATALOGUE, memory.source)
        for name, threads in default_options(type_, self.setting).items():
            if name not in (self.inputs.workload.options or {}):
                yield Assumption(
                    "engine option", f"{type_.name}: {name}={threads}", Origin.DEFAULT, "the engine's default"
                )
        efa = efa_rate(type_)
        if efa is not None:
            value = f"{type_.name}: {efa.bytes_per_second / 1e9:.3g} GB/s between hosts, for {SMDISTRIBUTED}"
            yield Assumption("EFA", value, Origin.CATALOGUE, f"{efa.source}, read {checked()}")
        by_rate: dict[float, list[str]] = {}
        for hosts in self.inputs.hosts:
            if hosts > 1:
                by_rate.setdefault(ring_rate(type_, hosts).bytes_per_second, []).append(str(hosts))
        rates = ", ".join(f"{rate / 1e9:.3g} GB/s on {'/'.join(hosts)}" for rate, hosts in by_rate.items())
        within = rate_within_host(type_)
        if rates:
            source = f"{ring_rate(type_, max(self.inputs.hosts)).source}, read {checked()}"
            yield Assumption("ring's rate", f"{type_.name}: {rates} hosts", Origin.CATALOGUE, source)
        value = f"{type_.name}: {within.bytes_per_second / 1e9:.3g} GB/s between the GPUs of a host, for the ring"
        yield Assumption("ring's rate", value, Origin.CATALOGUE, f"{within.source}, read {checked()}")
        price = self.prices.get(type_.name)
        if price is not None:
            yield Assumption("price", f"{type_.name}: {price.usd:g} USD per hour", Origin.PRICES, price.source)

    def _of_engine(self) -> Iterator[Assumption]:
        measured = self.setting.measured()
        used = {**self.setting.defaults, **measured}
        seconds = ", ".join(f"{name} {used[name]:.3g}" for name in _ENGINE_COSTS if name in used)
        value = f"over TCP on one interface; seconds: {seconds}"
        if not measured:
            yield Assumption(ENGINE, value, Origin.DEFAULT, "rounded defaults of the model, not measured")
            return
        source = f"{self.costs_file}, without {', '.join(sorted(OF_THE_MEASURED_MACHINE))}, which depend on the host"
        yield Assumption(ENGINE, value, Origin.FLAG, f"--costs {source}")

    def _overrides(self) -> Iterator[Assumption]:
        setting = self.setting
        for name, value in setting.everywhere.items():
            yield Assumption("cost", f"{name}={value:g} for every schedule", Origin.FLAG, "--cost")
        for schedule, costs in setting.of_schedule.items():
            for name, value in costs.items():
                yield Assumption("cost", f"{name}={value:g} for {schedule}", Origin.FLAG, "--cost")

    def _shortened(self, answers: Answers) -> Iterator[Assumption]:
        short = {one.hosts for _, one in self.exchanges() if one.method is Method.ONE_BUCKET}
        if short:
            value = f"on {min(short)} hosts or more, one bucket is modelled and scaled to the bytes of all buckets"
            source = "modelling every bucket would take minutes"
            yield Assumption("shortened", value + self._deviation(answers), Origin.DEFAULT, source)
