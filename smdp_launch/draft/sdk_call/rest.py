"""What a call of the SDK has and the job file does not."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from smdp_launch.draft.sdk_call.find import Found
from smdp_launch.draft.sdk_call.values import Made, Unknown
from smdp_launch.secret_forms import without_forms

#: The order of the arguments of the methods that start a job (sagemaker 2.257.7).
_POSITIONS = {
    "fit": ("inputs", "wait", "logs", "job_name", "experiment_config"),
    "train": ("input_data_config", "wait", "logs"),
}
#: Arguments without an effect on the request, and values that are those of the launcher's request.
_WITHOUT_EFFECT = frozenset({"sagemaker_session", "wait", "logs"})
_SAME: dict[str, Any] = {
    "disable_profiler": True,
    "container_log_level": 20,
    "requirements": "requirements.txt",
    "input_mode": "File",
    "training_input_mode": "File",
}
#: The training mode without local mode, which is the default.
_ON_SAGEMAKER = "SAGEMAKER_TRAINING_JOB"
_READ_METHODS = ("with_checkpoint_config", "with_metric_definitions", "with_retry_strategy")


def not_taken_over(found: Found) -> list[str]:
    """The arguments that nothing has read, of the calls and of the objects in them, with their places."""
    rest = list(_unread(found.made))
    if found.started is not None:
        names = _POSITIONS.get(found.started.name, ()) if found.tuner is None else ()
        rest += _unread(found.started, names=names)
    for name, call in found.with_.items():
        rest += _unread(call) if name in _READ_METHODS else [f"{name} in {call.place}"]
    return list(dict.fromkeys((*sorted(rest), *found.lost)))


def _unread(call: Made, owner: str = "", names: Sequence[str] = ()) -> Iterator[str]:
    """Args:
    names: those of the positional arguments.
    """
    arguments: list[tuple[int | str, Any]] = [*enumerate(call.given), *call.named.items()]
    for at, value in arguments:
        if at in call.read:
            # An object of which nothing is read has a note of its own, or a comment.
            for one in _objects(value):
                yield from _unread(one, f"{one.name}.") if one.read else ()
            continue
        name = names[at] if isinstance(at, int) and at < len(names) else at
        if _is_same(name, value) or name in _WITHOUT_EFFECT:
            continue
        if isinstance(name, int):
            yield f"argument {name + 1} of {call.name} in {call.place}"
        else:
            yield f"{owner}{without_forms(name)} in {call.places.get(name, call.place)}"


def _is_same(name: int | str, value: Any) -> bool:
    """Whether the request is the same without the argument."""
    if isinstance(value, Unknown):
        return name == "training_mode" and value.source.endswith(f".{_ON_SAGEMAKER}")
    if name == "requirements" and isinstance(value, str):
        value = posixpath.normpath(value)
    return value in (None, False, [], {}, _SAME.get(str(name)))


def _objects(value: Any) -> Iterator[Made]:
    if isinstance(value, Made):
        yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _objects(one)
