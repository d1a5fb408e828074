"""The schema's errors as diagnostics, each at its own place and with a correction if the meaning is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import ErrorDetails

from smdp_launch.diagnostics import Diagnostic, Edit, closest
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.channels import KINDS, S3Channel
from smdp_launch.jobfile.model.corrections import FREE_TEXT, UNITS, Correction, correction
from smdp_launch.jobfile.model.derived import default_checkpoint_location, moved_value
from smdp_launch.jobfile.model.fixes import edits_for
from smdp_launch.jobfile.model.key_aliases import field_for
from smdp_launch.jobfile.model.spec import SCHEMA_VERSION
from smdp_launch.jobfile.model.types import MAX_NAME
from smdp_launch.jobfile.yaml import common_errors
from smdp_launch.jobfile.yaml.document import EDITABLE, Document, Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.secret_forms import says_secret

#: With more errors than this there are no suggestions for unknown keys, because each takes time.
_MAX_SUGGESTIONS = 300

#: pydantic's error types, and the description of the expected type.
_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
}
#: A number with underscores, as in Python and YAML 1.1.
_UNDERSCORED = re.compile(r"[-+]?[0-9]+(_[0-9]+)+(\.[0-9]+)?")


def empty_value(document: Document, at: Location) -> Diagnostic:
    message = f"{_path(at)} has no value"
    help_ = "write a value, or remove the line; `null` means that there is none"
    return Diagnostic("SMDP203", message, document.entry(at).key, str(at[-1]), help_)


def diagnose(document: Document, details: list[ErrorDetails]) -> Iterator[Diagnostic]:
    """The diagnostics for pydantic's errors about the values of ``document``."""
    details = [one for one in details if not _follows_from_another(document, one)]
    missing = [one for one in details if one["type"] == "missing"]
    misspelt_keys: set[Location] = set()
    guess = len(details) <= _MAX_SUGGESTIONS
    for error in details:
        if error["type"] == "extra_forbidden":
            misspelt = _misspelt(error, missing) if guess else None
            if misspelt is not None:
                misspelt_keys.add(location_of(misspelt))
            yield _unknown_key(document, error, misspelt, guess=guess)
    # A misspelt key is one error, although pydantic reports an unknown key and a missing one.
    rest = [one for one in details if one["type"] != "extra_forbidden" and location_of(one) not in misspelt_keys]
    for one in rest:
        if one["type"] == "missing":
            yield _missing_key(document, one)
        else:
            yield _misread(document, one) or _invalid_value(document, one, guess=guess)


def _follows_from_another(document: Document, error: ErrorDetails) -> bool:
    """Whether the error follows from another one.

    A channel with two sources has keys that fit only one of them. Instance groups, which a rule refuses, replace the
    type and the count of instances.
    """
    location = location_of(error)
    if error["type"] == "missing" and location in (("compute", "instance_type"), ("compute", "instance_count")):
        return document.is_written(("compute", "instance_groups"))
    channel = document.data["channels"].get(location[1]) if schema.is_channel(location[:2]) else None
    return isinstance(channel, dict) and sum(kind in channel for kind in KINDS) > 1 and location[-1] not in KINDS


def _misspelt(error: ErrorDetails, missing: list[ErrorDetails]) -> ErrorDetails | None:
    *parent, key = location_of(error)
    candidates = {str(one["loc"][-1]): one for one in missing if list(location_of(one)[:-1]) == parent}
    # A key is missing in this mapping, so less similarity is enough: "s4" for "s3".
    match = closest(str(key), list(candidates), cutoff=0.5)
    return candidates[match] if match else None


def _unknown_key(document: Document, error: ErrorDetails, misspelt: ErrorDetails | None, *, guess: bool) -> Diagnostic:
    location = location_of(error)
    known = schema.known_keys(location[:-1], document.data)
    match = str(misspelt["loc"][-1]) if misspelt else closest(str(location[-1]), known) if guess else None
    where = f" in {_path(location[:-1])}" if len(location) > 1 else ""
    field = None if misspelt else field_for(str(location[-1]))
    edits: tuple[Edit, ...] = ()
    if field is not None and field != _path(location):
        help_ = f"the job file has `{field}` for it"
        target = moved_value(document, location, field) if guess else None
        edits = edits_for(document, location, remove=True, write=target) if target is not None else ()
    elif match:
        help_ = f'did you mean "{match}"?'
        edits = edits_for(document, location, replacement=to_yaml(match), on_key=True)
        edits = edits if _fits(document, (*location[:-1], match), error["input"]) else ()
    else:
        help_ = f"known keys: {', '.join(known)}"
    if schema.is_channel(location[:-1]) and location[-1] in S3Channel.model_fields and location[-1] not in KINDS:
        # S3 channels have this key, and the other kinds do not.
        help_ = f"remove it: it is for channels from S3; known keys: {', '.join(known)}"
        edits = edits_for(document, location, remove=True)
    message = f'unknown key "{location[-1]}"{where}'
    if schema.is_channel(location[:-1]) and location[-1] in KINDS:
        message, help_, edits = f"{_path(location[:-1])} has two sources", "split it into two channels", ()
    entry = document.entry(location)
    return Diagnostic("SMDP201", message, entry.key, str(location[-1]), help_, edits=edits)


def _fits(document: Document, location: Location, value: Any) -> bool:
    """Whether the meant key accepts the value of an unknown key. The contents of a mapping are not checked."""
    return isinstance(value, dict) or schema.accepts(location, document.data, value)


def _missing_key(document: Document, error: ErrorDetails) -> Diagnostic:
    location = location_of(error)
    parent = location[:-1]
    where = f"{_path(parent)} needs" if parent else "the job file needs"
    span = document.entry(parent).key
    example = schema.description(location, document.data)
    help_ = f"add `{location[-1]}:`" + (f" with {example}" if example else "")
    known = _known_value(document, location)
    edits = edits_for(document, location, write={location: known}) if known is not None else ()
    help_ = f"add `{location[-1]}: {known}`" if known is not None else help_
    return Diagnostic("SMDP202", f'{where} "{location[-1]}"', span, str(location[-1]), help_, edits=edits)


def _known_value(document: Document, location: Location) -> str | None:
    """The value of a missing key, as YAML, if it follows from the rest of the file."""
    if location == ("schema",):
        return str(SCHEMA_VERSION)
    return default_checkpoint_location(document) if location == ("checkpoint", "s3") else None


def _misread(document: Document, error: ErrorDetails) -> Diagnostic | None:
    """The diagnostic for a mapping or a number that YAML reads as text; None for another error."""
    location = location_of(error)
    if not document.is_written(location) or not isinstance(error["input"], str):
        return None
    entry = document.entry(location)
    key = common_errors.key_without_space(entry.text) if _TYPES.get(error["type"]) == "a mapping" else None
    if key is not None:
        # Only the first line of the text is shown, and an edit of that line alone does not fix several lines.
        editable = entry.source in EDITABLE and entry.value.end_column - entry.value.column == len(entry.text)
        return common_errors.missing_space(key, entry.value, entry.text, editable=editable)
    if _TYPES.get(error["type"]) in {"a number", "a whole number"} and _UNDERSCORED.fullmatch(entry.text):
        plain = entry.text.replace("_", "")
        message = f"{_path(location)} must be a number, but YAML reads {entry.text} as text"
        help_ = f"write {plain}: YAML 1.2 has no _ in numbers"
        edits = document.replacing(location, plain)
        return Diagnostic("SMDP203", message, entry.value, entry.text, help_, edits=edits)
    return None


def _invalid_value(document: Document, error: ErrorDetails, *, guess: bool) -> Diagnostic:
    location = location_of(error)
    while location and not document.is_written(location):
        location = location[:-1]  # pydantic adds the name of a union's member, such as "float"
    entry = document.entry(location)
    span = entry.key if error["loc"][-1] == "[key]" or _is_about_size(error) else entry.value
    text = str(location[-1]) if error["loc"][-1] == "[key]" else entry.text
    code, message, fix = _describe(document, location, error, text)
    is_key = error["loc"][-1] == "[key]"
    fix = (correction(document, location, error) if guess and not is_key else None) or fix
    if is_key or not guess:
        return Diagnostic(code, message, span, text, fix.help)
    edits = edits_for(document, location, replacement=fix.replacement, remove=fix.remove, write=fix.write)
    return Diagnostic(code, message, span, text, fix.help, edits=edits)


def _describe(document: Document, location: Location, error: ErrorDetails, text: str) -> tuple[str, str, Correction]:
    """The code and message for an invalid value, and how to fix it."""
    kind, path = error["type"], _path(location)
    if location == ("schema",):
        return _wrong_schema_version(error, text)
    if kind == "string_type" and isinstance(error["input"], int | float) and not isinstance(error["input"], bool):
        message = f"{path} must be text, but YAML reads {text} as a number"
        quotes = f'"{text}"' if _is_meant_as_text(document, location, text) else None
        return "SMDP206", message, Correction(f'put quotes around it: "{text}"', quotes)
    if kind in _TYPES:
        message = f"{path} must be {_TYPES[kind]}, not {_type_of(error['input'])}"
        example = _expected(error, document) if kind == "string_type" else ""
        return "SMDP203", message, Correction(example or f"write {_TYPES[kind]}")
    return "SMDP204", f"{path}: {_problem(error, text)}", _fix(error, document, text)


def _is_meant_as_text(document: Document, location: Location, text: str) -> bool:
    """Whether a number needs only quotes. A secret must be removed, with quotes or without."""
    is_text = location[0] in {*FREE_TEXT, "framework", "name"} and not says_secret(str(location[-1]))
    return is_text and schema.accepts(location, document.data, text)


def _wrong_schema_version(error: ErrorDetails, text: str) -> tuple[str, str, Correction]:
    help_ = f"write `schema: {SCHEMA_VERSION}`"
    if isinstance(error["input"], str):
        message = f'schema must be a whole number, not text "{text}"'
        return "SMDP203", message, Correction(f"{help_}, without quotes", str(SCHEMA_VERSION))
    if isinstance(error["input"], int) and error["input"] > SCHEMA_VERSION:
        help_ += "; for a file of a newer version, install that version of smdp-launch"
    return "SMDP205", f"schema {text} is not supported", Correction(help_, str(SCHEMA_VERSION))


def _problem(error: ErrorDetails, text: str) -> str:
    context = error.get("ctx", {})
    kind = error["type"]
    if kind in {"greater_than_equal", "less_than_equal"}:
        bound = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
        return f"{text} must be {bound}"
    if _is_about_size(error):
        bound = f"at least {context['min_length']}" if "min_length" in context else f"at most {context['max_length']}"
        return f"the number of entries is {len(error['input'])} and must be {bound}"
    if kind == "string_too_long":
        return f"it has {len(str(error['input']))} characters, and at most {context['max_length']} are allowed"
    if kind == "string_too_short":
        return "it is empty"
    if kind == "finite_number":
        return f"{text} cannot be sent as JSON"
    return f'"{text}" is not allowed'


def _fix(error: ErrorDetails, document: Document, text: str) -> Correction:
    if error["type"] == "literal_error":
        return _choice(error, text)
    bounds, value = error.get("ctx", {}), error["input"]
    if _is_about_size(error):
        excess = len(value) - bounds.get("max_length", len(value))
        return Correction(f"remove {excess}" if excess > 0 else "add one")
    if location_of(error) == ("name",) and _as_name(text):
        return Correction(f"write {_as_name(text)}", to_yaml(_as_name(text)))
    if error["type"] == "greater_than_equal":
        return Correction(f"write {bounds['ge']} or more")
    if error["type"] == "less_than_equal":
        # A time or a size becomes the largest that is allowed. A number of things is for the user to decide.
        at = location_of(error)
        is_alone = at in UNITS and not (at == ("compute", "max_run") and document.is_written(("spot", "max_wait")))
        return Correction(f"write {bounds['le']} or less", str(bounds["le"]) if is_alone else None)
    return Correction(_expected(error, document))


def _choice(error: ErrorDetails, text: str) -> Correction:
    choices = str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
    match = closest(text, choices)
    if match is None:
        return Correction(f"one of: {', '.join(choices)}")
    return Correction(f'did you mean "{match}"?', to_yaml(match))


def _is_about_size(error: ErrorDetails) -> bool:
    """Whether a list or mapping has too many or too few entries."""
    return error["type"] in {"too_long", "too_short"} and isinstance(error["input"], dict | list)


def _as_name(text: str) -> str:
    """The valid job name that is closest to ``text``; empty if nothing of it is valid."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", text)[:MAX_NAME].strip("-")


def _expected(error: ErrorDetails, document: Document) -> str:
    description = schema.description(location_of(error), document.data, of_key=error["loc"][-1] == "[key]")
    return f"write {description}" if description else ""


def _path(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _type_of(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f'text "{value}"' if isinstance(value, str) else f"the number {value}"


def location_of(error: ErrorDetails) -> Location:
    """The location of the error in the file."""
    # pydantic reports an invalid key of a mapping as (..., key, "[key]").
    return schema.without_kinds(tuple(part for part in error["loc"] if part != "[key]"))


def meant_fields(document: Document, details: list[ErrorDetails]) -> frozenset[Location]:
    """The fields that unknown keys probably mean: a field with a misspelt name is not missing too."""
    meant: set[Location] = set()
    for one in details if len(details) <= _MAX_SUGGESTIONS else ():
        *parent, key = location_of(one)
        if one["type"] == "extra_forbidden":
            match = closest(str(key), schema.known_keys(tuple(parent), document.data))
            meant.update([(*parent, match)] if match and not document.is_written((*parent, match)) else [])
    return frozenset(meant)
