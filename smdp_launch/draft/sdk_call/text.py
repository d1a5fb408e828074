"""A draft from a call of the SDK as the text of a job file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from smdp_launch.draft.jobfile import HEADER
from smdp_launch.draft.sdk_call.draft import nested
from smdp_launch.draft.sdk_call.job import At, SdkJob
from smdp_launch.jobfile.yaml.text import comment, key, to_yaml

#: The order of the sections in the file.
_ORDER = (
    *("schema", "name", "engine", "policy", "framework", "image", "role", "region", "script", "compute", "spot"),
    *("channels", "output", "checkpoint", "network", "encryption", "environment", "tags", "metrics"),
    *("engine_options", "local"),
)

_SCRIPT = ("entry", "source", "hyperparameters")
#: Mappings below this are values, on one line.
_DEEPEST = 2


def job_file_text(job: SdkJob, file: str, place: str) -> str:
    """The text of the job file.

    Args:
        file: the name of the script or notebook.
        place: of the call in it.
    """
    values = nested(job)
    ordered = {name: values[name] for name in _ORDER if name in values}
    ordered["script"] = {name: ordered["script"][name] for name in _SCRIPT if name in ordered["script"]}
    lines = [*HEADER, f"# From {comment(file)}, {place}.", *_lines(ordered, (), job)]
    missing = [(at, text) for at, text in job.left_out.items() if not _has(ordered, at[:-1])]
    lines += [f"# {'.'.join(map(key, at))}: {comment(text)}" for at, text in missing]
    return "\n".join(lines) + "\n"


def _has(values: Any, at: At) -> bool:
    return not at or (isinstance(values, Mapping) and at[0] in values and _has(values[at[0]], at[1:]))


def _lines(values: Mapping[str, Any], at: At, job: SdkJob) -> Iterator[str]:
    indent, comments = "  " * len(at), job.comments
    for name, value in values.items():
        here = (*at, name)
        note = f" # {comment(comments[here])}" if here in comments else ""
        if isinstance(value, Mapping) and value and len(here) <= _DEEPEST:
            yield f"{indent}{key(name)}:{note}"
            yield from _lines(value, here, job)
        else:
            yield f"{indent}{key(name)}: {to_yaml(value)}{note}"
    yield from (f"{indent}# {key(one[-1])}: {comment(text)}" for one, text in job.left_out.items() if one[:-1] == at)
