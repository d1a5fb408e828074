"""What a call of the SDK has and the job file does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from smdp_launch.draft.sdk_call.find import Found
from smdp_launch.draft.sdk_call.values import Made
from smdp_launch.secret_forms import without_forms

#: Arguments without an effect on the request, and values that are those of the launcher's request.
_WITHOUT_EFFECT = frozenset({"sagemaker_session", "wait", "logs"})
_SAME: dict[str, Any] = {
    "disable_profiler": True,
    "container_log_level": 20,
    "requirements": "requirements.txt",
}
_READ_METHODS = ("with_checkpoint_config", "with_metric_definitions", "with_retry_strategy")


def not_taken_over(found: Found) -> list[str]:
    """The arguments that nothing has read, of the calls and of the objects in them, with their places."""
    rest = [*_unread(found.made), *(_unread(found.started) if found.started is not None else ())]
    for name, call in found.with_.items():
        rest += _unread(call) if name in _READ_METHODS else [f"{name} in {call.place}"]
    return list(dict.fromkeys((*sorted(rest), *found.lost)))


def _unread(call: Made, owner: str = "") -> Iterator[str]:
    arguments: list[tuple[int | str, Any]] = [*enumerate(call.given), *call.named.items()]
    for at, value in arguments:
        if at in call.read:
            # An object of which nothing is read has a note of its own, or a comment.
            for one in _objects(value):
                yield from _unread(one, f"{one.name}.") if one.read else ()
        elif value in (None, False, _SAME.get(str(at))) or at in _WITHOUT_EFFECT:
            continue
        elif isinstance(at, int):
            yield f"argument {at + 1} of {call.name} in {call.place}"
        else:
            yield f"{owner}{without_forms(at)} in {call.places.get(at, call.place)}"


def _objects(value: Any) -> Iterator[Made]:
    if isinstance(value, Made):
        yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _objects(one)
