"""Walks a request along the service's own description of it and tells every value that breaks a limit. Pure.

``walk`` takes a whole request, ``check_value`` one value by its place, so that a single field can be checked though
others are missing. Messages never quote texts of the request: they may be secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from smdp_launch.catalog.limits import (
    Shape,
    compiled,
    documented_limit,
    pattern_in_words,
    request_shape,
    shape,
)
from smdp_launch.diagnostics import closest

Path = tuple[str | int, ...]

#: In a path: any index of a list, or any value of a map.
ANY = "*"

#: Kind -> the Python types that botocore sends as it, and what it is called.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "structure": ((dict,), "a mapping"),
    "map": ((dict,), "a mapping"),
    "list": ((list, tuple), "a list"),
    "string": ((str,), "text"),
    "integer": ((int,), "a whole number"),
    "long": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "double": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}
_BITS = {"integer": 32, "long": 64}
_LISTED = 12


class Violation(NamedTuple):
    """One value that the service would refuse.

    Args:
        path: from the request's top; names, map keys and indices.
        kind: ``required``, ``unknown``, ``type``, ``min``, ``max``, ``pattern`` or ``enum``.
        value: the offending value; None where one is missing.
        limit: what it breaks: the number, the pattern, the values allowed, the type's name, the missing member.
        message: one sentence without the value.
        help: what was meant, or where a limit is stated that the model lacks; may be empty.
        meant: the name or value that was meant, if ``help`` names one.
    """

    path: Path
    kind: str
    value: Any
    limit: Any
    message: str
    help: str = ""
    meant: str | None = None


def walk(request: Mapping[str, Any], operation: str = "CreateTrainingJob") -> Iterator[Violation]:
    """Every violation of ``request``, in its own order.

    Raises:
        KeyError: the limits of ``operation`` are not known.
    """
    yield from _check((), dict(request), request_shape(operation))


def check_value(path: Path, value: Any, operation: str = "CreateTrainingJob") -> Iterator[Violation]:
    """The violations of the value at ``path`` alone, with all below it.

    Args:
        path: such as ``("HyperParameters", "*")`` or ``("InputDataConfig", 0, "ChannelName")``.

    Raises:
        KeyError: a request has no such place.
    """
    yield from _check(path, value, _shape_at(path, operation))


def check_key(path: Path, key: Any, operation: str = "CreateTrainingJob") -> Iterator[Violation]:
    """The violations of one key of the map at ``path``, such as ``("Environment",)``.

    Raises:
        KeyError: a request has no map there.
    """
    found = _shape_at(path, operation)
    if found.key is None:
        raise KeyError(f"no map at {path}")
    yield from _check_name(path, key, shape(found.key))


def _shape_at(path: Path, operation: str) -> Shape:
    found = request_shape(operation)
    for step in path:
        name = found.members.get(str(step)) or found.element or found.value
        if name is None or (found.element is not None and not (isinstance(step, int) or step == ANY)):
            raise KeyError(f"{operation} has nothing at {path}")
        found = shape(name)
    return found


def _check(path: Path, value: Any, expected: Shape) -> Iterator[Violation]:
    if not _is_a(value, expected.kind):
        title = _TYPES[expected.kind][1]
        yield Violation(path, "type", value, title, f"{_called(value)} where {title} is needed")
        return
    broken = list(_size(path, value, expected))
    yield from broken
    if expected.kind == "string" and not broken:
        yield from _text(path, value, expected)
    elif expected.kind in _WALKS:
        yield from _WALKS[expected.kind](path, value, expected)


def _is_a(value: Any, kind: str) -> bool:
    # To Python, true is a number; to the service it is not.
    return isinstance(value, _TYPES[kind][0]) and (kind == "boolean" or not isinstance(value, bool))


def _size(path: Path, value: Any, expected: Shape) -> Iterator[Violation]:
    documented = documented_limit(".".join(ANY if isinstance(step, int) else str(step) for step in path))
    low, high, source_low, source_high = expected.minimum, expected.maximum, "", ""
    if documented is not None and documented.minimum is not None:
        low, source_low = documented.minimum, documented.source
    if documented is not None and documented.maximum is not None:
        high, source_high = documented.maximum, documented.source
    if expected.kind in _BITS:
        most = 2 ** (_BITS[expected.kind] - 1)
        low, high = (-most if low is None else low), (most - 1 if high is None else high)
    amount, unit = _measure(value, expected)
    if low is not None and amount < low:
        yield Violation(path, "min", value, low, f"{_counted(amount, unit)}, {low} at least", source_low)
    if high is not None and amount > high:
        yield Violation(path, "max", value, high, f"{_counted(amount, unit)}, {high} at most", source_high)


def _measure(value: Any, expected: Shape) -> tuple[Any, tuple[str, str]]:
    """The number that bounds are about, with its unit in one and many."""
    if isinstance(value, str):
        return len(value), ("character", "characters")
    if expected.kind in ("list", "map"):
        return len(value), ("entry", "entries")
    if expected.kind in ("structure", "boolean"):
        return 0, ("", "")
    return value, ("", "")


def _text(path: Path, value: str, expected: Shape) -> Iterator[Violation]:
    if expected.enum and value not in expected.enum:
        few = len(expected.enum) <= _LISTED
        message = (
            f"not one of {', '.join(expected.enum)}" if few else f"not one of the {len(expected.enum)} values known"
        )
        match = closest(value, expected.enum, cutoff=0.8)
        help_ = f"did you mean {match}?" if match else ""
        yield Violation(path, "enum", value, expected.enum, message, help_, match)
    if expected.pattern is not None and not compiled(expected.pattern).fullmatch(value):
        words = pattern_in_words(expected.name)
        message = f"has to be {words}" if words else f"does not match the pattern {expected.pattern}"
        yield Violation(path, "pattern", value, expected.pattern, message)


def _structure(path: Path, value: dict[str, Any], expected: Shape) -> Iterator[Violation]:
    for name in expected.required:
        if name not in value:
            yield Violation(path, "required", None, name, f"{name} is missing")
    for name, one in value.items():
        member = expected.members.get(name)
        if member is not None:
            yield from _check((*path, name), one, shape(member))
            continue
        match = closest(str(name), list(expected.members))
        what = f"{path[-1]} has" if path else "the request has"
        yield Violation(
            (*path, name),
            "unknown",
            one,
            expected.name,
            f"{what} no member {name}",
            f"did you mean {match}?" if match else "",
            match,
        )


def _list(path: Path, value: Sequence[Any], expected: Shape) -> Iterator[Violation]:
    if expected.element is None:
        raise ValueError(f"{expected.name} is a list of nothing")
    for index, one in enumerate(value):
        yield from _check((*path, index), one, shape(expected.element))


def _map(path: Path, value: dict[Any, Any], expected: Shape) -> Iterator[Violation]:
    if expected.key is None or expected.value is None:
        raise ValueError(f"{expected.name} is a map of nothing")
    for key, one in value.items():
        yield from _check_name(path, key, shape(expected.key))
        yield from _check((*path, key), one, shape(expected.value))


def _check_name(path: Path, name: Any, expected: Shape) -> Iterator[Violation]:
    for one in _check((*path, name), name, expected):
        yield one._replace(message=f"the name: {one.message}")


_WALKS: dict[str, Callable[[Path, Any, Shape], Iterator[Violation]]] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
}


def _counted(amount: Any, unit: tuple[str, str]) -> str:
    return f"{amount} {unit[0] if amount == 1 else unit[1]}".rstrip()


def _called(value: Any) -> str:
    """What a value of the wrong type is called; the value itself may be a secret."""
    if value is None:
        return "nothing"
    for types, title in ((bool, "true or false"), (int, "a whole number"), (float, "a fraction"), (str, "text")):
        if isinstance(value, types):
            return title
    return "a list" if isinstance(value, list | tuple) else "a mapping" if isinstance(value, dict) else "something else"
