"""Search over training jobs: filters, nested filters and subexpressions, as in the API reference of SearchExpression
and Filter.

The name of a property is its path, such as `ResourceConfig.InstanceType`, `HyperParameters.epochs`, `Tags.team` or
`Metrics.loss`. Through a list a path leads to every entry, and one matching entry is enough.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from botocore.utils import parse_to_aware_datetime

from smdp_launch.localcloud.errors import validation

Record = Mapping[str, Any]
_TIMES = {
    "CreationTime",
    "TrainingStartTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "StartTime",
    "EndTime",
    "Timestamp",
}
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": operator.gt,
    "GreaterThanOrEqualTo": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqualTo": operator.le,
}


def matches(expression: Mapping[str, Any], record: Record) -> bool:
    """Whether all parts of the expression match, or with the operator Or one of them. An empty expression matches."""
    parts: list[bool] = [
        *(_holds(one, record) for one in expression.get("Filters", [])),
        *(_holds_nested(one, record) for one in expression.get("NestedFilters", [])),
        *(matches(one, record) for one in expression.get("SubExpressions", [])),
    ]
    return (any if expression.get("Operator") == "Or" else all)(parts) if parts else True


def sort_key(record: Record, name: str) -> tuple[int, Any]:
    """The sort key for the property: numbers come before texts, texts before records without the property."""
    value = next(iter(values(record, name)), None)
    if value is None or isinstance(value, dict):
        return 2, ""
    return (0, float(value)) if isinstance(value, int | float) else (1, str(value))


def values(record: Any, path: str) -> Iterator[Any]:
    """All values at the path."""
    first, _, rest = path.partition(".")
    if isinstance(record, list):
        for one in record:
            yield from values(one, path)
    elif isinstance(record, dict):
        if path in record:  # hyperparameters and tags may have dots in their names
            yield from _entries(record[path])
        elif first == "Tags" and rest:
            yield from (tag["Value"] for tag in record.get("Tags", []) if tag["Key"] == rest)
        elif first == "Metrics" and rest:
            found = record.get("FinalMetricDataList", [])
            yield from (one["Value"] for one in found if one["MetricName"] == rest.removesuffix(".Value"))
        elif rest and first in record:
            yield from values(record[first], rest)


def _entries(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else [value]


def _holds_nested(nested: Mapping[str, Any], record: Record) -> bool:
    """Whether one entry of the named list matches every filter. The filters' names begin with the list's name."""
    name = nested["NestedPropertyName"]
    found = (one for one in values(record, name) if isinstance(one, dict))
    inner = [{**one, "Name": one["Name"].removeprefix(f"{name}.")} for one in nested["Filters"]]
    return any(all(_holds(one, entry) for one in inner) for entry in found)


def _holds(condition: Mapping[str, Any], record: Record) -> bool:
    name, wanted = condition["Name"], condition.get("Value")
    kind: str = condition.get("Operator", "Equals")
    found = list(values(record, name))
    if kind in ("Exists", "NotExists"):
        if wanted is not None:
            raise validation(f"Value must not be specified with the operator {kind} of the filter {name!r}.")
        return bool(found) == (kind == "Exists")
    if wanted is None:
        raise validation(f"Value must be specified with the operator {kind} of the filter {name!r}.")
    if kind == "NotEquals":
        return not any(_compared(operator.eq, one, wanted, name) for one in found)
    if kind == "In":
        return any(_compared(operator.eq, one, part.strip(), name) for one in found for part in wanted.split(","))
    if kind == "Contains":
        return any(wanted.lower() in str(one).lower() for one in found)
    return any(_compared(_ORDERS.get(kind, operator.eq), one, wanted, name) for one in found)


def _compared(by: Callable[[Any, Any], bool], value: Any, wanted: str, name: str) -> bool:
    """Compare by the type of the job's value, since a filter's value is always text. A structure matches nothing."""
    if isinstance(value, dict | list):
        return False
    if isinstance(value, bool):
        return by(str(value).lower(), wanted.lower())
    if name.rpartition(".")[2] in _TIMES and isinstance(value, int | float):
        return by(_moment(value), _time(wanted, name))
    if isinstance(value, int | float) or by is not operator.eq:
        try:
            return bool(by(float(value), float(wanted)))
        except ValueError:
            if isinstance(value, int | float):
                raise validation(f"{wanted!r} in the filter {name!r} is not a number.") from None
            return by(str(value), wanted)
    return by(str(value), wanted)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _time(text: str, name: str) -> datetime:
    try:
        time: datetime = parse_to_aware_datetime(text)
    except (ValueError, RuntimeError, OverflowError):
        raise validation(f"{text!r} in the filter {name!r} is not a time such as 2026-01-31T12:00:00Z.") from None
    return time
