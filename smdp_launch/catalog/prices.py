"""Prices from a table: that of the user, or one that `catalog prices --update` has fetched. No prices are shipped,
because they change and differ between contracts.

    {"date": "2026-11-01", "source": "our contract", "currency": "USD",
     "prices": {"us-east-1": {"ml.p4d.24xlarge": 12.5}}}

JSON or YAML; ``currency`` is optional. A price is for one instance of a training job for one hour. The optional key
``storage`` has prices of FSx for Lustre for one GiB (AWS writes GB-month) and one month:

    "storage": {"us-east-1": {"PERSISTENT_2 SSD 250": 0.25}}

The optional key ``hosting`` has prices of one instance of an endpoint or a batch transform for one hour:

    "hosting": {"us-east-1": {"ml.m5.large": 0.1}}

`catalog prices --update` writes such a table for each region into the user's data folder.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from smdp_launch.catalog.limits import endpoint_types, known_instance_types, transform_types
from smdp_launch.catalog.regions import closest_region, region_known
from smdp_launch.catalog.storage import lustre_types
from smdp_launch.diagnostics import closest
from smdp_launch.errors import EnvironmentProblem

_MAX_BYTES = 1 << 20
#: USD an hour. No instance costs more, so a higher number is an error.
HIGHEST_PRICE = 100_000
_KEYS = ("date", "source", "currency", "prices", "storage", "hosting")


class PriceTableProblem(EnvironmentProblem):
    """The table cannot be used; ``problems`` and the message have all reasons."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__("\n  ".join([f"the price table {path} cannot be used:", *problems]))
        self.problems = problems


class PriceTable(NamedTuple):
    """USD for an hour of one instance, by region and type, from ``source`` on ``date``.

    Args:
        storage: USD for a GiB of FSx for Lustre and a month, by region and kind of file system.
        hosting: USD for an hour of one instance of an endpoint, by region and type.
    """

    date: datetime.date
    source: str
    prices: Mapping[str, Mapping[str, float]]
    storage: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    hosting: Mapping[str, Mapping[str, float]] = MappingProxyType({})

    def hosting_hourly(self, region: str, instance_type: str) -> float | None:
        """USD for an hour of one instance of an endpoint; None if the table has no such price."""
        return self.hosting.get(region, {}).get(instance_type)

    def hourly(self, region: str, instance_type: str) -> float | None:
        """USD for an hour of one instance; None if the table has no such price."""
        return self.prices.get(region, {}).get(instance_type)

    def mean_hourly(self, region: str, hosts: Mapping[str, int]) -> float | None:
        """USD for an hour of one instance, as the mean of ``hosts`` by type; None if the table lacks a price."""
        return mean_price(self.prices.get(region, {}), hosts)


def mean_price(prices: Mapping[str, float], hosts: Mapping[str, int]) -> float | None:
    """The mean price of one instance: times the number of all instances it gives their sum. None if one has no price.

    Args:
        hosts: number of instances by type.
    """
    if not hosts or any(one not in prices for one in hosts):
        return None
    return sum(prices[one] * count for one, count in hosts.items()) / sum(hosts.values())


def instance_hours(instance_count: int, seconds: int) -> float:
    """The hours of all instances together for a job of ``seconds``."""
    return instance_count * seconds / 3600


def read_prices(path: Path) -> PriceTable:
    """Read the price table at ``path``.

    Raises:
        PriceTableProblem: the file cannot be read, or a part of it is not valid.
    """
    loaded = _load(path)
    problems = list(_problems(loaded))
    if problems:
        raise PriceTableProblem(path, problems)
    more = (loaded.get("storage", {}), loaded.get("hosting", {}))
    return PriceTable(_day(loaded["date"]), loaded["source"], loaded["prices"], *more)


def fetched_file(region: str) -> Path | None:
    """Where the table of the region is, or would be; None if the region or the home folder is unknown."""
    if not region_known(region):
        return None
    try:
        import platformdirs

        return platformdirs.user_data_path("smdp-launch") / "prices" / f"{region}.json"
    except (OSError, RuntimeError, KeyError):
        return None


def fetched_prices(region: str) -> PriceTable | None:
    """The fetched table of the region; None if none was fetched.

    Raises:
        PriceTableProblem: the table cannot be used.
    """
    path = fetched_file(region)
    return read_prices(path) if path is not None and path.is_file() else None


def command_for_prices(region: str) -> str:
    """The command that fetches the prices of the region."""
    return f"smdp-launch catalog prices --region {region} --update"


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise PriceTableProblem(path, [f"it cannot be read: {error.strerror}"]) from error
    if len(raw) > _MAX_BYTES:
        raise PriceTableProblem(path, [f"it is larger than {_MAX_BYTES} bytes"])
    try:
        text = raw.decode("utf-8-sig")
        return _json(text) if path.suffix == ".json" else _yaml(text)
    except (ValueError, RecursionError) as error:
        raise PriceTableProblem(path, [f"it cannot be parsed: {' '.join(str(error).split())}"]) from error


def _json(text: str) -> Any:
    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(f"the key {duplicate!r} appears twice")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=mapping)


def _yaml(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error


def _problems(loaded: Any) -> Iterator[str]:
    if not isinstance(loaded, dict):
        yield f"it must be one mapping with {', '.join(_KEYS)}"
        return
    for key in loaded:
        if key not in _KEYS:
            match = closest(str(key), _KEYS)
            yield f"{key!r} is not a known key" + (f", did you mean {match!r}?" if match else "")
    if _day_or_none(loaded.get("date")) is None:
        yield "`date` must be the day of the prices, such as 2026-11-01"
    if not (isinstance(loaded.get("source"), str) and loaded["source"].strip()):
        yield "`source` must name the source of the prices"
    if loaded.get("currency", "USD") != "USD":
        yield "`currency` must be USD, the currency of AWS's prices"
    prices = loaded.get("prices")
    if not (isinstance(prices, dict) and prices):
        yield "`prices` must be a mapping of region to instance type to USD an hour"
        return
    for region, types in prices.items():
        yield from _region_problems(region, types, known_instance_types(), "training")
    yield from _all_storage_problems(loaded.get("storage", {}))
    yield from _hosting_problems(loaded.get("hosting", {}))


def _hosting_problems(hosting: Any) -> Iterator[str]:
    if not isinstance(hosting, dict):
        yield "`hosting` must be a mapping of region to instance type to USD an hour"
        return
    known = endpoint_types() | transform_types()
    for region, types in hosting.items():
        yield from (f"hosting: {one}" for one in _region_problems(region, types, known, "hosting"))


def _all_storage_problems(storage: Any) -> Iterator[str]:
    if not isinstance(storage, dict):
        yield "`storage` must be a mapping of region to file system to USD a GiB and month"
        return
    for region, kinds in storage.items():
        yield from _storage_problems(region, kinds)


def _storage_problems(region: Any, kinds: Any) -> Iterator[str]:
    known = [one.name for one in lustre_types()]
    if not (isinstance(region, str) and region_known(region)):
        yield _unknown_region(region)
    elif not isinstance(kinds, dict):
        yield f"storage: {region} must be a mapping of file system to USD a GiB and month"
    else:
        for name, price in kinds.items():
            if name not in known:
                match = closest(str(name), known)
                yield f"storage: {region}: {name!r} is not a file system" + (
                    f", did you mean {match}?" if match else ""
                )
            elif not _is_price(price):
                yield f"storage: {region}: {name} must be the USD of a GiB and a month, a number above 0"


def _unknown_region(region: Any) -> str:
    match = closest_region(str(region))
    return f"{region!r} is not a region" + (f", did you mean {match}?" if match else "")


def _region_problems(region: Any, types: Any, known: frozenset[str], purpose: str) -> Iterator[str]:
    if not (isinstance(region, str) and region_known(region)):
        yield _unknown_region(region)
        return
    if not (isinstance(types, dict) and types):
        yield f"{region} must be a mapping of instance type to USD an hour"
        return
    for name, price in types.items():
        if not (isinstance(name, str) and name in known):
            match = closest(str(name), sorted(known), cutoff=0.8)
            yield f"{region}: {name!r} is not an instance type for {purpose}" + (
                f", did you mean {match}?" if match else ""
            )
        elif not _is_price(price):
            yield f"{region}: {name} must be the USD of one instance an hour, a number above 0"


def _is_price(price: Any) -> bool:
    return isinstance(price, int | float) and not isinstance(price, bool) and 0 < price <= HIGHEST_PRICE


def _day(value: Any) -> datetime.date:
    day = _day_or_none(value)
    if day is None:
        raise ValueError(f"{value!r} is not a day")
    return day


def _day_or_none(value: Any) -> datetime.date | None:
    """A date of YAML, or the text of one in JSON; None for anything else, such as a date with a time."""
    if isinstance(value, datetime.date):
        return None if isinstance(value, datetime.datetime) else value
    try:
        return datetime.date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
