"""What the hosts send each other for a probe, through the control channel. Every parser raises ValueError."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Collection, Mapping, TypeVar

_MOST = 4096
_MOST_STREAMS = 64
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Ready:
    """A host is ready: where it listens on each rail, by the rail's name, and its number of Elastic Fabric Adapters.
    `main` is the name of the rail that has the host's own address."""

    rails: dict[str, tuple[str, int]]
    main: str
    adapters: int

    def fields(self) -> dict[str, Any]:
        return {"step": "ready", **asdict(self)}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Ready:
        rails = fields.get("rails")
        if not isinstance(rails, dict) or len(rails) > _MOST:
            raise ValueError("no rails")
        places = {str(name): _place(place) for name, place in rails.items()}
        return cls(places, str(fields.get("main", "")), _count(fields, "adapters"))


@dataclass(frozen=True)
class Call:
    """A link to measure from this host: to `host`, from its own rail `rail` to the address of the same rail there."""

    host: str
    rail: str
    address: str
    port: int


@dataclass(frozen=True)
class Round:
    """A part of the probe, in which each host measures its `calls`. `streams` 0: latency; else the rate of so many
    connections a link, which send `chunk` bytes at once. It ends after `limit` seconds. A rate is measured for `window`
    seconds after `skip` seconds."""

    number: int
    calls: tuple[Call, ...]
    streams: int
    chunk: int
    limit: float
    skip: float
    window: float

    def fields(self) -> dict[str, Any]:
        return {"step": "round", **asdict(self)}

    def without(self, hosts: Collection[str]) -> Round:
        """The round without the calls to these hosts."""
        return replace(self, calls=tuple(call for call in self.calls if call.host not in hosts))

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Round:
        return cls(
            number=_count(fields, "number"),
            calls=tuple(_list(fields, "calls", _call)),
            streams=min(_count(fields, "streams"), _MOST_STREAMS),
            chunk=_count(fields, "chunk"),
            limit=_number(fields, "limit"),
            skip=_number(fields, "skip"),
            window=_number(fields, "window"),
        )


@dataclass(frozen=True)
class Value:
    """A measured link: `value` in bytes a second or in seconds; None with the reason in `error`."""

    source: str
    target: str
    rail: str
    value: float | None
    error: str = ""


@dataclass(frozen=True)
class Measured:
    """What a host measured in a round."""

    number: int
    values: tuple[Value, ...]

    def fields(self) -> dict[str, Any]:
        return {"step": "measured", **asdict(self)}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Measured:
        return cls(_count(fields, "number"), tuple(_list(fields, "values", _value)))


def _call(one: Mapping[str, Any]) -> Call:
    address, port = _place([one["address"], one["port"]])
    return Call(str(one["host"]), str(one["rail"]), address, port)


def _value(one: Mapping[str, Any]) -> Value:
    value = _number(one, "value") if one.get("value") is not None else None
    error = str(one.get("error", ""))[:200]
    return Value(str(one["source"]), str(one["target"]), str(one["rail"]), value, error)


def _place(place: Any) -> tuple[str, int]:
    if not isinstance(place, (list, tuple)) or len(place) != 2 or not isinstance(place[1], int):
        raise ValueError("no address and port")
    if not 0 < place[1] < 65536:
        raise ValueError("no port")
    return str(place[0]), place[1]


def _list(fields: Mapping[str, Any], name: str, parse: Callable[[Mapping[str, Any]], _Item]) -> list[_Item]:
    items = fields.get(name)
    if not isinstance(items, (list, tuple)) or len(items) > _MOST:
        raise ValueError(f"{name} is no list")
    try:
        return [parse(item) for item in items]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name}: {error!r}") from None


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise ValueError(f"{name} is no number")
    return value


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is no number")
    return float(value)
