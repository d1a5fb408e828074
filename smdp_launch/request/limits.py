"""Find every value of a request that breaks a limit of the service's model. Pure.

``walk`` checks a whole request. ``check_value`` checks one value by its path, so that a single field can be checked
although others are missing. Messages never quote texts of the request, because a text can be a secret.
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

#: In a path: any index of a list, or any key of a map.
ANY = "*"

#: The Python types that botocore sends as a kind, and the kind's name in messages.
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
_MAX_LISTED = 12


class Violation(NamedTuple):
    """One value that the service refuses.

    Args:
        path: names, map keys and indices from the top of the request.
        kind: ``required``, ``unknown``, ``type``, ``min``, ``max``, ``pattern`` or ``enum``.
        value: the invalid value; None if it is missing.
        limit: the limit that it breaks: a number, a pattern, the allowed values, the type's name, the missing field.
        message: one sentence without the value.
        help: the name or value that was probably meant, or the source of a limit that the model lacks; may be empty.
        meant: that name or value, if ``help`` has one.
    """

    path: Path
    kind: str
    value: Any
    limit: Any
    message: str
    help: str = ""
    meant: str | None = None


def walk(request: Mapping[str, Any], operation: str = "CreateTrainingJob") -> Iterator[Violation]:
    """Every violation in ``request``, in the order of its fields.

    Raises:
        KeyError: the table of limits does not have ``operation``.
    """
    yield from _check((), dict(request), request_shape(operation))


def check_value(path: Path, value: Any, operation: str = "CreateTrainingJob") -> Iterator[Violation]:
    """The violations of the value at ``path`` and of everything in it.

    Args:
        path: such as ``("HyperParameters", "*")`` or ``("InputDataConfig", 0, "ChannelName")``.

    Raises:
        KeyError: a request has no such path.
    """
    yield from _check(path, value, _shape_at(path, operation))


def check_key(path: Path, key: Any, operation: str = "CreateTrainingJob") -> Iterator[Violation]:
    """The violations of one key of the map at ``path``, such as ``("Environment",)``.

    Raises:
        KeyError: a request has no map at this path.
    """
    expected = _shape_at(path, operation)
    if expected.key is None:
        raise KeyError(f"no map at {path}")
    yield from _check_name(path, key, shape(expected.key))


def _shape_at(path: Path, operation: str) -> Shape:
    current = request_shape(operation)
    for step in path:
        name = current.members.get(str(step)) or current.element or current.value
        if name is None or (current.element is not None and not (isinstance(step, int) or step == ANY)):
            raise KeyError(f"{operation} has no field {path}")
        current = shape(name)
    return current


def _check(path: Path, value: Any, expected: Shape) -> Iterator[Violation]:
    if not _is_a(value, expected.kind):
        title = _TYPES[expected.kind][1]
        yield Violation(path, "type", value, title, f"must be {title}, not {_type_of(value)}")
        return
    violations = list(_size(path, value, expected))
    yield from violations
    if expected.kind == "string" and not violations:
        yield from _text(path, value, expected)
    elif expected.kind in _WALKS:
        yield from _WALKS[expected.kind](path, value, expected)


def _is_a(value: Any, kind: str) -> bool:
    # In Python a boolean is an integer; for the service it is not.
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
        yield Violation(path, "min", value, low, f"{amount}{unit}, at least {low} required", source_low)
    elif high is not None and amount > high:
        yield Violation(path, "max", value, high, f"{amount}{unit}, at most {high} allowed", source_high)
    elif documented is not None and documented.values and amount not in documented.values:
        yield Violation(path, "enum", value, documented.values, f"not one of {', '.join(map(str, documented.values))}")


def _measure(value: Any, expected: Shape) -> tuple[Any, str]:
    """The number that the bounds apply to, and its unit after a space; empty for plain numbers."""
    if expected.kind in ("structure", "boolean"):
        return 0, ""
    if not isinstance(value, str | list | tuple | dict):
        return value, ""
    units = ("character", "characters") if isinstance(value, str) else ("entry", "entries")
    return len(value), f" {units[len(value) != 1]}"


def _text(path: Path, value: str, expected: Shape) -> Iterator[Violation]:
    if expected.enum and value not in expected.enum:
        are_few = len(expected.enum) <= _MAX_LISTED
        allowed = ", ".join(expected.enum) if are_few else f"the {len(expected.enum)} known values"
        match = closest(value, expected.enum, cutoff=0.8)
        help_ = f"did you mean {match}?" if match else ""
        yield Violation(path, "enum", value, expected.enum, f"not one of {allowed}", help_, match)
    if expected.pattern is not None and not compiled(expected.pattern).fullmatch(value):
        words = pattern_in_words(expected.name)
        message = f"must be {words}" if words else f"does not match the pattern {expected.pattern}"
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
        message = f"{path[-1] if path else 'the request'} has no field {name}"
        help_ = f"did you mean {match}?" if match else ""
        yield Violation((*path, name), "unknown", one, expected.name, message, help_, match)


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


def _type_of(value: Any) -> str:
    """The type of a wrong value, for messages; the value itself may be a secret."""
    if value is None:
        return "nothing"
    for types, title in ((bool, "true or false"), (int, "a whole number"), (float, "a fraction"), (str, "text")):
        if isinstance(value, types):
            return title
    return "a list" if isinstance(value, list | tuple) else "a mapping" if isinstance(value, dict) else "something else"
