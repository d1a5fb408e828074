"""The checks of WarmStartConfig: what the developer guide's page about warm start requires of parents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.end_state import ENDED
from smdp_launch.localcloud.errors import validation
from smdp_launch.localcloud.runtime.tuning.values import definition_of, objective_of, ranges_of

_MOST_CHANGES = 10


def check_parent(request: Mapping[str, Any], name: str, status: str, parent: Mapping[str, Any]) -> None:
    """Raises ServiceError.

    Args:
        name, status: of the parent, whose request is `parent`.
    """
    if status not in ENDED:
        raise validation(f"The parent tuning job {name} is in status {status}: it must be {', '.join(sorted(ENDED))}.")
    if dict(objective_of(request)) != dict(objective_of(parent)):
        raise validation(f"The objective metric must be the same as that of the parent tuning job {name}.")
    fixed, before = _fixed(request), _fixed(parent)
    kinds, kinds_before = _kinds(request), _kinds(parent)
    own, theirs = len(fixed) + len(kinds), len(before) + len(kinds_before)
    if own != theirs:
        raise validation(
            f"There are {own} hyperparameters, static and with ranges together, and the parent tuning job {name} has "
            f"{theirs}: the number must be the same."
        )
    for one in sorted(set(kinds) & set(kinds_before)):
        if kinds[one] != kinds_before[one]:
            raise validation(f"Hyperparameter {one!r} has another type than in the parent tuning job {name}.")
    changes = sum(2 for one in set(fixed) & set(before) if fixed[one] != before[one])
    changes += sum(_weight(parent, one) for one in set(kinds_before) & set(fixed))
    if changes > _MOST_CHANGES:
        raise validation(
            f"There are {changes} changes of static hyperparameters from the parent tuning job {name}; at most "
            f"{_MOST_CHANGES} are allowed."
        )


def _fixed(request: Mapping[str, Any]) -> Mapping[str, str]:
    own: Mapping[str, str] = definition_of(request).get("StaticHyperParameters", {})
    return own


def _kinds(request: Mapping[str, Any]) -> dict[str, str]:
    return {one["Name"]: kind for kind, each in ranges_of(request).items() for one in each}


def _weight(parent: Mapping[str, Any], name: str) -> int:
    """The changes that a range counts for that becomes static: one, or one for each value of a list."""
    lists = ranges_of(parent).get("CategoricalParameterRanges", [])
    return next((len(one["Values"]) for one in lists if one["Name"] == name), 1)
