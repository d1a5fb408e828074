"""Sound job files give no diagnostics, and the service accepts their requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from smdp_launch.checking.job import check_job
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.parser import read
from tests.support.job_files.good_files import FILES, refused_by_service, request_of

Leaf = tuple[str, ...]


def test_there_are_forty_three_sound_files() -> None:
    assert len(FILES) == 43


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sound_file_gives_no_diagnostics(path: Path) -> None:
    job = check_job(path, environ={})
    assert job.diagnostics == ()
    assert refused_by_service(request_of(job)) == []


def test_every_field_of_the_schema_is_used() -> None:
    used = {leaf for leaf, _ in every_value()}
    assert {leaf for leaf, _ in leaves(JobSpec)} - used == set()


def test_every_literal_of_the_schema_is_used() -> None:
    used = {(leaf, value) for leaf, value in every_value() if isinstance(value, str)}
    words = {(leaf, word) for leaf, annotation in leaves(JobSpec) for word in literals(annotation)}
    assert words - used == set()


def leaves(model: type[BaseModel], at: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """Each field of a job file except deprecated ones; ``*`` is a name that users choose."""
    for name, info in schema.fields(model).items():
        if not info.deprecated:
            yield from _leaves_of(info.annotation, (*at, name))


def _leaves_of(annotation: Any, at: Leaf) -> Iterator[tuple[Leaf, Any]]:
    element = schema.element(annotation)
    if at == ("channels", "*"):
        for kind in (S3Channel, FsxChannel, EfsChannel):
            yield from leaves(kind, at)
    elif element is not None:
        yield from _leaves_of(element, (*at, "*"))
    elif (model := schema.model_of(annotation, {})) is not None:
        yield from leaves(model, at)
    else:
        yield at, annotation


def every_value() -> Iterator[tuple[Leaf, Any]]:
    for path in FILES:
        yield from _values_of(JobSpec, read(path, {})[0].data, ())


def _values_of(annotation: Any, value: Any, at: Leaf) -> Iterator[tuple[Leaf, Any]]:
    model, element = schema.model_of(annotation, value), schema.element(annotation)
    if model is not None:
        for key, one in value.items():
            yield from _values_of(schema.fields(model)[key].annotation, one, (*at, key))
    elif element is not None:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _values_of(element, one, (*at, "*"))
    else:
        yield at, value


def literals(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return tuple(one for one in get_args(annotation) if isinstance(one, str))
    return tuple(word for one in get_args(annotation) for word in literals(one))
