"""What each job, sweep, endpoint and warm pool of a folder cost: from its history, and what the service answers now.

A cost is the price of one host, times the hosts, times the seconds that the service bills. Nothing is estimated:
without a price there are seconds and instance-hours, and no money.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from smdp_launch.catalog.prices import PriceTable, fetched_prices
from smdp_launch.jobs.records.endpoints import Served, deployments
from smdp_launch.jobs.records.history import LOCAL, ends, entries, launches
from smdp_launch.jobs.records.lines import End, Launch, Retained

#: Statuses of endpoints in which no host is billed.
_UNBILLED = frozenset({"Deleted", "Failed", "Completed", "Stopped"})


@dataclass(frozen=True)
class Spent:
    """One cost.

    Args:
        kind: ``job``, ``sweep``, ``endpoint`` or ``warm pool``.
        began: the launch or deployment. A cost belongs to the week of this time.
        seconds: those that are billed for one host, for a sweep of all trials; None if they are not known.
        training_seconds: more than ``seconds`` if spot capacity saved money.
        price: USD an hour of one host, with several groups the mean of all hosts, from ``source``; None if it is not
            known.
        is_open: more will be billed.
        most_usd: of a job that has not ended: at its limits.
        types: number of hosts by instance type, of a job with several groups.
    """

    name: str
    kind: str
    where: str
    began: datetime
    status: str
    hosts: int | None
    seconds: int | None
    instance_type: str | None = None
    training_seconds: int | None = None
    price: float | None = None
    source: str | None = None
    is_open: bool = False
    most_usd: float | None = None
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    types: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def instance_hours(self) -> float | None:
        return None if self.seconds is None or self.hosts is None else self.hosts * self.seconds / 3600

    @property
    def usd(self) -> float | None:
        """None if the price or the seconds are not known."""
        if self.instance_hours == 0:
            return 0.0
        return None if self.price is None or self.instance_hours is None else self.price * self.instance_hours

    @property
    def saved_usd(self) -> float | None:
        """What spot capacity saved; None without a price, or if nothing was saved."""
        if self.price is None or self.hosts is None or not self.saved_seconds:
            return None
        return self.price * self.hosts * self.saved_seconds / 3600

    @property
    def saved_share(self) -> float | None:
        """Of the trained seconds, those that were not billed; None if nothing was saved."""
        return self.saved_seconds / self.training_seconds if self.training_seconds and self.saved_seconds else None

    @property
    def saved_seconds(self) -> int:
        """Of one host: those that were trained and not billed."""
        return max(0, self.training_seconds - self.seconds) if self.training_seconds and self.seconds is not None else 0


@dataclass(frozen=True)
class Open:
    """What the service says now of something that is not finished.

    Args:
        seconds: billed until now for one host; None if it is not known.
    """

    status: str
    seconds: int | None


@dataclass
class Prices:
    """The price of a host: that of the given table, else that of the launch, else that which was fetched."""

    table: PriceTable | None = None
    _fetched: dict[str, PriceTable | None] = field(default_factory=dict)

    def of_launch(self, launch: Launch, instance_type: str | None) -> tuple[float | None, str | None]:
        kind = instance_type or launch.instance_type
        if launch.types:
            return self._of_groups(launch, launch.types)
        if self.table is not None and kind is not None:
            price = self.table.hourly(launch.where, kind)
            if price is not None:
                return price, source_of(self.table)
        price = launch.price_of(instance_type)
        if price is not None:
            return price, launch.price_source or "the price table of the launch"
        fetched = self._of_region(launch.where)
        if fetched is None or kind is None or fetched.hourly(launch.where, kind) is None:
            return None, None
        return fetched.hourly(launch.where, kind), source_of(fetched)

    def _of_groups(self, launch: Launch, types: Mapping[str, int]) -> tuple[float | None, str | None]:
        price = self.table.mean_hourly(launch.where, types) if self.table is not None else None
        if self.table is not None and price is not None:
            return price, source_of(self.table)
        if launch.price is not None:
            return launch.price, launch.price_source or "the price table of the launch"
        fetched = self._of_region(launch.where)
        price = fetched.mean_hourly(launch.where, types) if fetched is not None else None
        return (price, source_of(fetched)) if fetched is not None and price is not None else (None, None)

    def of_endpoint(self, served: Served) -> tuple[float | None, str | None]:
        kind, where = served.instance_type, served.where
        if self.table is not None and kind is not None and self.table.hosting_hourly(where, kind) is not None:
            return self.table.hosting_hourly(where, kind), source_of(self.table)
        if served.hourly_usd is not None and served.hosts:
            return served.hourly_usd / served.hosts, "the price table of the deployment"
        fetched = self._of_region(where)
        if fetched is None or kind is None or fetched.hosting_hourly(where, kind) is None:
            return None, None
        return fetched.hosting_hourly(where, kind), source_of(fetched)

    def _of_region(self, region: str) -> PriceTable | None:
        if region not in self._fetched:
            self._fetched[region] = fetched_prices(region)
        return self._fetched[region]


def source_of(table: PriceTable) -> str:
    return f"{table.source}, {table.date}"


@dataclass(frozen=True)
class Ledger:
    """The costs of one folder on AWS. Local runs cost nothing and are not in it.

    Args:
        beside: the folder; None for the current one.
        current: by name, what the service says of jobs without a recorded end, of endpoints, and of warm pools, whose
            key is ``warm pool of`` and the job. Empty offline.
    """

    prices: Prices
    now: datetime
    beside: Path | None = None
    current: Mapping[str, Open] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[Spent]:
        """The costs, the latest first.

        Raises:
            PriceTableProblem: a fetched price table cannot be used.
        """
        return sorted([*self._jobs(), *self._endpoints()], key=lambda one: one.began, reverse=True)

    def _jobs(self) -> Iterator[Spent]:
        ended = ends(self.beside)
        retained = {one.job: one for one in entries(Retained, self.beside)}
        for launch in launches(self.beside):
            if launch.where != LOCAL:
                yield self._job(launch, ended.get(launch.job))
                yield from self._pool(launch, ended.get(launch.job), retained.get(launch.job))

    def _job(self, launch: Launch, end: End | None) -> Spent:
        current = self.current.get(launch.job, Open("not ended", None))
        status, seconds, training, kind = current.status, current.seconds, None, launch.instance_type
        if end is not None:
            status, training, kind = end.summary, end.training_seconds, end.instance_type or kind
            # A job that never trained has no billable seconds. Those of a sweep are unknown in older histories.
            seconds = 0 if end.billable_seconds is None and not launch.sweep else end.billable_seconds
        price, source = self.prices.of_launch(launch, kind)
        return Spent(
            name=launch.job,
            kind="sweep" if launch.sweep else "job",
            where=launch.where,
            began=datetime.fromisoformat(launch.time),
            status=status,
            hosts=launch.hosts,
            seconds=seconds,
            instance_type=kind,
            training_seconds=training,
            price=price,
            source=source,
            is_open=end is None,
            most_usd=launch.most_usd if end is None else None,
            tags=launch.tags or {},
            types=launch.types or {},
        )

    def _pool(self, launch: Launch, end: End | None, retained: Retained | None) -> Iterator[Spent]:
        current = self.current.get(pool_of(launch.job))
        if retained is None and current is None:
            return
        kind = (end.instance_type if end is not None else None) or launch.instance_type
        price, source = self.prices.of_launch(launch, kind)
        status, seconds = (retained.pool, retained.retained_seconds) if retained is not None else ("", None)
        if current is not None:
            status, seconds = current.status, current.seconds
        yield Spent(
            name=launch.job,
            kind="warm pool",
            where=launch.where,
            began=datetime.fromisoformat(launch.time),
            status=status,
            hosts=launch.hosts,
            seconds=seconds,
            instance_type=kind,
            price=price,
            source=source,
            is_open=retained is None,
            tags=launch.tags or {},
        )

    def _endpoints(self) -> Iterator[Spent]:
        for served, deleted in deployments(self.beside):
            if served.where == LOCAL:
                continue
            current = self.current.get(served.endpoint) if deleted is None else None
            price, source = self.prices.of_endpoint(served)
            is_billed = deleted is None and (current is None or current.status not in _UNBILLED)
            until = deleted if deleted is not None else self.now
            by_time = served.kind in ("realtime", "async") and (deleted is not None or is_billed)
            status = "deleted" if deleted is not None else current.status if current is not None else "not deleted"
            yield Spent(
                name=served.endpoint,
                kind="endpoint",
                where=served.where,
                began=served.deployed_at,
                status=status if by_time or deleted is not None else f"{status}, {served.kind}",
                hosts=served.hosts,
                seconds=max(0, int((until - served.deployed_at).total_seconds())) if by_time else None,
                instance_type=served.instance_type,
                price=price,
                source=source,
                is_open=is_billed and by_time,
            )


def pool_of(job: str) -> str:
    """The key of the job's warm pool in `Ledger.current`."""
    return f"warm pool of {job}"
