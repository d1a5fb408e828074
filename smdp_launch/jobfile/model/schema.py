"""Look-ups in the models by location: the fields of a section, and the values that a field accepts."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from smdp_launch.jobfile.model.channels import KINDS, channel_kind
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.model.types import expected
from smdp_launch.jobfile.yaml.document import Location, value_at


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


def description(location: Location, data: Any, *, of_key: bool = False) -> str | None:
    """The description of the values that ``location`` accepts, if the model has one."""
    if of_key:
        return expected(get_args(_plain(_annotation(location[:-1], data)))[0])
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


def _annotation(location: Location, data: Any) -> Any:
    annotation: Any = JobSpec
    for part in location:
        info = _field(model_of(annotation, data), part)
        annotation = info.annotation if info is not None else element(annotation)
        data = value_at(data, (part,))
    return annotation


def _model_at(location: Location, data: Any) -> type[BaseModel] | None:
    return model_of(_annotation(location, data), value_at(data, location))


def _field(model: type[BaseModel] | None, name: str | int) -> FieldInfo | None:
    return fields(model).get(str(name)) if model is not None else None


def _with_metadata(location: Location, data: Any) -> Any:
    """The annotation at ``location`` with the bounds that its field sets."""
    info = _field(_model_at(location[:-1], data), location[-1])
    if info is None:
        return _annotation(location, data)
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
