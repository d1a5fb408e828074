"""A value of a wrong kind, in any field of a sound job file, is reported. No rule reads a field that has an error."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from smdp_launch.diagnostics import has_errors
from tests.support.job_files.good_files import FILES, checked, request_of, workshop

WRONG = (3.25, "wrong?", [None], {"x": 1}, None)
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inside:
        yield (*at, name)
        yield from places(one, (*at, name))


def with_value(data: Any, at: Place, value: Any) -> str:
    changed = copy.deepcopy(data)
    around = changed
    for part in at[:-1]:
        around = around[part]
    around[at[-1]] = value
    text = io.StringIO()
    YAML().dump(changed, text)
    return text.getvalue()


def judge(folder: Path, *, is_sample: bool) -> None:
    path = workshop(folder)
    seen: set[Place] = set()
    judged = 0
    for file in FILES:
        data = YAML().load(file.read_text())
        for at in places(data):
            values = sample(at, seen) if is_sample else WRONG
            seen.add(at)
            for value in values:
                text = with_value(data, at, value)
                try:
                    job = checked(path, text)
                    _ = has_errors(job.diagnostics) or request_of(job)
                except Exception as error:
                    raise AssertionError(f"{file.stem}: {'.'.join(map(str, at))}: {value!r}") from error
                judged += 1
    assert judged > 400


def sample(at: Place, seen: set[Place]) -> Sequence[Any]:
    """Each place in one file; those of the hosts, which many rules read, in every file."""
    return WRONG[:2] if at not in seen else WRONG[:1] if at[0] == "compute" else ()


def test_value_of_a_wrong_kind_is_reported_in_each_field(tmp_path: Path) -> None:
    judge(tmp_path, is_sample=True)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_value_of_a_wrong_kind_is_reported_in_each_field_of_each_file(tmp_path: Path) -> None:
    judge(tmp_path, is_sample=False)
