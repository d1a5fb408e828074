"""Look-ups in the models by location: the fields of a section, the values that a field accepts, and what the models say
of an error of pydantic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from smdp_launch.jobfile.model.channels import KINDS, channel_kind
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.model.types import expected
from smdp_launch.jobfile.yaml.document import Document, Entry, Location, value_at


class SchemaError(NamedTuple):
    """An error of pydantic, its place in the file, and what the schema says of it.

    Args:
        at: the location in the file.
        written: the same without what pydantic adds, such as ``float`` for a member of a union.
        kind: pydantic's type of the error.
        is_key: whether the key is wrong, not its value.
        entry: the place in the file; for a missing key, that of the mapping.
        keys: for an unknown key, the known keys of its mapping.
        expected: the description of valid values, if the model has one.
        accepts: whether a value is valid there, apart from other fields.
    """

    at: Location
    written: Location
    kind: str
    value: Any
    bounds: Mapping[str, Any]
    is_key: bool
    entry: Entry
    keys: list[str]
    expected: str | None
    accepts: Callable[[Any], bool]


def errors_of(document: Document, details: list[ErrorDetails]) -> list[SchemaError]:
    """Pydantic's errors about the values of ``document``."""
    return [_error(document, one) for one in details]


def _error(document: Document, error: ErrorDetails) -> SchemaError:
    # pydantic reports an invalid key of a mapping as (..., key, "[key]").
    at = without_kinds(tuple(part for part in error["loc"] if part != "[key]"))
    kind, is_key, data = error["type"], error["loc"][-1] == "[key]", document.data
    keys = known_keys(at[:-1], data) if kind == "extra_forbidden" else []
    expected_there = description(at, data, of_key=is_key) if kind != "extra_forbidden" else None
    written = at
    while written and written not in document.entries:
        written = written[:-1]
    accepted = partial(accepts, written, data)
    bounds = error.get("ctx", {})
    return SchemaError(
        at, written, kind, error["input"], bounds, is_key, document.entry(at), keys, expected_there, accepted
    )


def is_channel(location: Location) -> bool:
    return len(location) == 2 and location[0] == "channels"


def without_kinds(location: Location) -> Location:
    """The location without the name of the union member, which pydantic adds after a channel's name."""
    if len(location) > 2 and is_channel(location[:2]) and location[2] in KINDS:
        return (*location[:2], *location[3:])
    return location


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by their names in a job file."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def known_keys(location: Location, data: Any) -> list[str]:
    """The keys that a mapping at ``location`` of ``data`` may have; empty if users choose the names."""
    model = _model_at(location, data)
    return [name for name, info in fields(model).items() if not info.deprecated] if model is not None else []


def keys_around(location: Location, document: Document) -> list[str]:
    """The known keys of the mapping to which a value at ``location`` has to be added."""
    parent = location[:-1]
    while parent and not document.is_written(parent):
        parent = parent[:-1]
    return known_keys(parent, document.data)


def description(location: Location, data: Any, *, of_key: bool = False) -> str | None:
    """The description of the values that ``location`` accepts, if the model has one."""
    if of_key:
        return expected(get_args(_plain(_at(location[:-1], data)[0]))[0])
    return expected(_with_metadata(location, data))


def accepts(location: Location, data: Any, value: Any) -> bool:
    """Whether ``value`` is valid at ``location``, apart from other fields."""
    annotation = _with_metadata(location, data)
    if annotation is None:
        return False
    try:
        TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def model_of(annotation: Any, value: Any) -> type[BaseModel] | None:
    """The model for ``value``, if the annotation has one."""
    models = [one for one in _members(annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    if len(models) > 1:
        return next(one for one in models if channel_kind(value) in one.model_fields)
    return models[0] if models else None


def element(annotation: Any) -> Any:
    """The annotation of a mapping's or list's values, else None."""
    plain = _plain(annotation)
    return get_args(plain)[-1] if get_origin(plain) in {dict, list} else None


def has_free_names(location: Location, data: Any) -> bool:
    """Whether ``location`` takes a mapping whose names users choose, such as ``environment``."""
    return get_origin(_plain(_at(location, data)[0])) is dict


def without_errors(model: type[BaseModel], data: Mapping[str, Any], invalid: frozenset[Location], at: Location) -> Any:
    """A model without validation: the file's valid values, None for invalid ones, and defaults for the rest.

    This works because the models are strict: they do not convert a valid value.
    """
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        key = info.alias or name
        here = (*at, key)
        if here in invalid:
            values[name] = None
        elif key in data:
            values[name] = _valid_value(info.annotation, data[key], invalid, here)
        else:
            values[name] = info.get_default(call_default_factory=True)
    return model.model_construct(**values)


def _valid_value(annotation: Any, value: Any, invalid: frozenset[Location], at: Location) -> Any:
    model = model_of(annotation, value)
    if model is not None and isinstance(value, dict):
        return without_errors(model, value, invalid, at)
    inner = element(annotation)
    if inner is not None and isinstance(value, dict):
        valid = {key: one for key, one in value.items() if (*at, key) not in invalid}
        return {key: _valid_value(inner, one, invalid, (*at, key)) for key, one in valid.items()}
    return value


def _at(location: Location, data: Any) -> tuple[Any, Any]:
    """The annotation at ``location``, and the value of ``data`` there."""
    annotation: Any = JobSpec
    for part in location:
        model = model_of(annotation, data)
        info = _field(model, part)
        annotation = info.annotation if info is not None else element(annotation)
        data = value_at(data, (part,))
    return annotation, data


def _model_at(location: Location, data: Any) -> type[BaseModel] | None:
    return model_of(*_at(location, data))


def _field(model: type[BaseModel] | None, name: str | int) -> FieldInfo | None:
    return fields(model).get(str(name)) if model is not None else None


def _with_metadata(location: Location, data: Any) -> Any:
    """The annotation at ``location`` with the bounds that its field sets."""
    info = _field(_model_at(location[:-1], data), location[-1])
    if info is None:
        return _at(location, data)[0]
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def _members(annotation: Any) -> list[Any]:
    """The members of a union, or the annotation itself."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in {dict, list, None} or not get_args(annotation):
        return [annotation]
    return [member for one in get_args(annotation) for member in _members(one)]


def _plain(annotation: Any) -> Any:
    """The annotation without ``| None`` and metadata."""
    return next((one for one in _members(annotation) if one is not type(None)), annotation)
