"""The schema's errors as diagnostics, each at its own place and with a correction if the meaning is known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from smdp_launch.diagnostics import Diagnostic, closest
from smdp_launch.jobfile.model import list_forms, misplaced, schema
from smdp_launch.jobfile.model.channels import KINDS, S3Channel
from smdp_launch.jobfile.model.corrections import FREE_TEXT, UNITS, Correction, correction
from smdp_launch.jobfile.model.derived import default_checkpoint_location, moved_value
from smdp_launch.jobfile.model.fixes import Fix, edits_for
from smdp_launch.jobfile.model.key_aliases import field_for
from smdp_launch.jobfile.model.schema import SchemaError
from smdp_launch.jobfile.model.spec import SCHEMA_VERSION
from smdp_launch.jobfile.model.types import MAX_NAME
from smdp_launch.jobfile.yaml import common_errors
from smdp_launch.jobfile.yaml.document import EDITABLE, Document, Entry, Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.secret_forms import says_secret
from smdp_launch.units import count

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
_EMPTY: Mapping[str, object] = {"a mapping": {}, "a list": []}
#: The pattern of texts that have no description of their own.
_ONE_LINE = r"^[^\n]*$"
#: A number with underscores, as in Python and YAML 1.1.
_UNDERSCORED = re.compile(r"[-+]?[0-9]+(_[0-9]+)+(\.[0-9]+)?")


def empty_value(at: Location, entry: Entry) -> Diagnostic:
    message = f"{_path(at)} has no value"
    help_ = "write a value, or remove the line; `null` means that there is none"
    return Diagnostic("SMDP203", message, entry.key, str(at[-1]), help_)


class _Fixable(NamedTuple):
    diagnostic: Diagnostic
    fix: Fix | None = None


def diagnose(document: Document, errors: list[SchemaError]) -> Iterator[Diagnostic]:
    """The diagnostics of the schema's errors, with the edits of their fixes."""
    for diagnostic, fix in _with_fixes(document, errors):
        yield replace(diagnostic, edits=edits_for(document, fix)) if fix is not None else diagnostic


def _with_fixes(document: Document, errors: list[SchemaError]) -> Iterator[_Fixable]:
    wrong_place = misplaced.find(document, errors)
    meant = {*wrong_place.values(), *_moved(errors)}
    errors = [one for one in errors if not _follows_from_another(document, one) and not _is_inside(one, wrong_place)]
    unknown = {one.at for one in errors if one.kind == "extra_forbidden"}
    for at in wrong_place.keys() - unknown:
        yield _Fixable(misplaced.diagnostic(document, at, "SMDP202"))
    errors = [one for one in errors if one.kind != "missing" or one.at not in meant]
    missing = [one for one in errors if one.kind == "missing"]
    misspelt_keys: set[Location] = set()
    guess = len(errors) <= _MAX_SUGGESTIONS
    for error in errors:
        if error.kind == "extra_forbidden":
            misspelt = _misspelt(error, missing) if guess else None
            if misspelt is not None:
                misspelt_keys.add(misspelt.at)
            one = _unknown_key(document, error, misspelt, guess=guess)
            is_misplaced = error.at in wrong_place
            yield one._replace(diagnostic=misplaced.diagnostic(document, error.at, "SMDP201")) if is_misplaced else one
    # A misspelt key is one error, although pydantic reports an unknown key and a missing one.
    for error in errors:
        if error.kind == "missing" and error.at not in misspelt_keys:
            yield _missing_key(document, error)
        elif error.kind != "extra_forbidden" and error.at not in misspelt_keys:
            yield _misread(error) or _invalid_value(document, error, guess=guess)


def _moved(errors: list[SchemaError]) -> Iterator[Location]:
    """The required keys that are at another place: each is one error, although pydantic reports two."""
    for one in errors:
        field = field_for(str(one.at[-1])) if one.kind == "extra_forbidden" else None
        if field is not None and field.rpartition(".")[2] == one.at[-1]:
            yield tuple(field.split("."))


def _is_inside(error: SchemaError, locations: Collection[Location]) -> bool:
    return any(error.at[: len(at)] == at and len(error.at) > len(at) for at in locations)


def _follows_from_another(document: Document, error: SchemaError) -> bool:
    """Whether the error follows from another one.

    A channel with two sources has keys that fit only one of them. Instance groups, which a rule refuses, replace the
    type and the count of instances.
    """
    if error.kind == "missing" and error.at in (("compute", "instance_type"), ("compute", "instance_count")):
        return document.is_written(("compute", "instance_groups"))
    channel = document.data["channels"].get(error.at[1]) if schema.is_channel(error.at[:2]) else None
    return isinstance(channel, dict) and sum(kind in channel for kind in KINDS) > 1 and error.at[-1] not in KINDS


def _misspelt(error: SchemaError, missing: list[SchemaError]) -> SchemaError | None:
    candidates = {str(one.at[-1]): one for one in missing if one.at[:-1] == error.at[:-1]}
    # A key is missing in this mapping, so less similarity is enough: "s4" for "s3".
    match = closest(str(error.at[-1]), list(candidates), cutoff=0.5)
    return candidates[match] if match else None


def _unknown_key(document: Document, error: SchemaError, misspelt: SchemaError | None, *, guess: bool) -> _Fixable:
    *around, key = error.at
    match = str(misspelt.at[-1]) if misspelt else closest(str(key), error.keys) if guess else None
    where = f" in {_path(error.at[:-1])}" if around else ""
    field = None if misspelt else field_for(str(key))
    message, fix = f'unknown key "{key}"{where}', None
    if field is not None and field != _path(error.at):
        help_ = f"the job file has `{field}` for it"
        target = moved_value(document, error.at, field) if guess else None
        fix = Fix(error.at, remove=True, write=target) if target is not None else None
    elif match:
        help_ = f'did you mean "{match}"?'
        # The meant key has to accept the value. The contents of a mapping are not checked.
        meant: Location = (*around, match)
        fits = isinstance(error.value, dict) or schema.accepts(meant, document.data, error.value)
        fix = Fix(error.at, to_yaml(match), on_key=True) if fits else None
    else:
        help_ = f"known keys: {', '.join(error.keys)}"
    in_channel = schema.is_channel(error.at[:-1])
    if in_channel and key in S3Channel.model_fields and key not in KINDS:
        # S3 channels have this key, and the other kinds do not.
        help_ = f"remove it: it is for channels from S3; known keys: {', '.join(error.keys)}"
        fix = Fix(error.at, remove=True)
    if in_channel and key in KINDS:
        message, help_, fix = f"{_path(error.at[:-1])} has two sources", "split it into two channels", None
    return _Fixable(Diagnostic("SMDP201", message, error.entry.key, str(key), help_), fix)


def _missing_key(document: Document, error: SchemaError) -> _Fixable:
    key, around = str(error.at[-1]), error.at[:-1]
    where = f"{_path(around)} needs" if around else "the job file needs"
    known = _known_value(document, error.at)
    if known is not None:
        help_, fix = f"add `{key}: {known}`", Fix(error.at, write={error.at: known})
    else:
        help_, fix = f"add `{key}:`" + (f" with {error.expected}" if error.expected else ""), None
    return _Fixable(Diagnostic("SMDP202", f'{where} "{key}"', error.entry.key, key, help_), fix)


def _known_value(document: Document, location: Location) -> str | None:
    """The value of a missing key, as YAML, if it follows from the rest of the file."""
    if location == ("schema",):
        return str(SCHEMA_VERSION)
    return default_checkpoint_location(document) if location == ("checkpoint", "s3") else None


def _misread(error: SchemaError) -> _Fixable | None:
    """The diagnostic for a mapping or a number that YAML reads as text; None for another error."""
    if error.written != error.at or not isinstance(error.value, str):
        return None
    entry, wanted = error.entry, _TYPES.get(error.kind)
    key = common_errors.key_without_space(entry.text) if wanted == "a mapping" else None
    if key is not None:
        # Only the first line of the text is shown, and an edit of that line alone does not fix several lines.
        editable = entry.source in EDITABLE and entry.value.end_column - entry.value.column == len(entry.text)
        return _Fixable(common_errors.missing_space(key, entry.value, entry.text, editable=editable))
    if wanted in {"a number", "a whole number"} and _UNDERSCORED.fullmatch(entry.text):
        plain = entry.text.replace("_", "")
        message = f"{_path(error.at)} must be a number, but YAML reads {entry.text} as text"
        help_ = f"write {plain}: YAML 1.2 has no _ in numbers"
        return _Fixable(Diagnostic("SMDP203", message, entry.value, entry.text, help_), Fix(error.at, plain))
    return None


def _invalid_value(document: Document, error: SchemaError, *, guess: bool) -> _Fixable:
    entry = error.entry
    span = entry.key if error.is_key or _is_about_size(error) else entry.value
    text = str(error.written[-1]) if error.is_key else entry.text
    code, message, fix = _describe(document, error, text)
    fix = (correction(document, error) if guess and not error.is_key else None) or fix
    message = f"{_path(error.written)}: {fix.message}" if fix.message else message
    diagnostic = Diagnostic(code, message, span, text, fix.help)
    if error.is_key or not guess:
        return _Fixable(diagnostic)
    return _Fixable(diagnostic, Fix(error.written, fix.replacement, fix.remove, fix.write))


def _describe(document: Document, error: SchemaError, text: str) -> tuple[str, str, Correction]:
    """The code and message for an invalid value, and how to fix it."""
    kind, path = error.kind, _path(error.written)
    if error.written == ("schema",):
        return _wrong_schema_version(error, text)
    if kind == "string_type" and isinstance(error.value, int | float) and not isinstance(error.value, bool):
        message = f"{path} must be text, but YAML reads {text} as a number"
        quotes = f'"{text}"' if _is_meant_as_text(error, text) else None
        return "SMDP206", message, Correction(f'put quotes around it: "{text}"', quotes)
    if kind in _TYPES:
        message = f"{path} must be {_TYPES[kind]}, not {_type_of(error.value)}"
        example = _expected(error) if kind == "string_type" else _example(error)
        return "SMDP203", message, Correction(example or f"write {_TYPES[kind]}")
    return "SMDP204", f"{path}: {_problem(error, text)}", _fix(document, error, text)


def _example(error: SchemaError) -> str:
    """What to write in place of nothing or of a list, where a mapping or another list is needed."""
    key, nothing = error.written[-1], _EMPTY.get(_TYPES[error.kind])
    if nothing is not None and error.value is None and error.accepts(nothing):
        return f"remove {key}:, or write {key}: {to_yaml(nothing)}"
    example = list_forms.EXAMPLES.get(error.written)
    return f"write {key}: {example}" if example else ""


def _is_meant_as_text(error: SchemaError, text: str) -> bool:
    """Whether a number needs only quotes. A secret must be removed, with quotes or without."""
    at = error.written
    return at[0] in {*FREE_TEXT, "framework", "name"} and not says_secret(str(at[-1])) and error.accepts(text)


def _wrong_schema_version(error: SchemaError, text: str) -> tuple[str, str, Correction]:
    help_ = f"write `schema: {SCHEMA_VERSION}`"
    if isinstance(error.value, str):
        message = f'schema must be a whole number, not text "{text}"'
        return "SMDP203", message, Correction(f"{help_}, without quotes", str(SCHEMA_VERSION))
    if isinstance(error.value, int) and error.value > SCHEMA_VERSION:
        help_ += "; for a file of a newer version, install that version of smdp-launch"
    return "SMDP205", f"schema {text} is not supported", Correction(help_, str(SCHEMA_VERSION))


def _problem(error: SchemaError, text: str) -> str:
    context, kind = error.bounds, error.kind
    if kind in {"greater_than_equal", "less_than_equal", "greater_than"}:
        least = f"greater than {context['gt']:g}" if "gt" in context else f"at least {context.get('ge')}"
        bound = f"at most {context['le']}" if "le" in context else least
        return f"{text} must be {bound}"
    if _is_about_size(error):
        bound = f"at least {context['min_length']}" if "min_length" in context else f"at most {context['max_length']}"
        return f"the number of entries is {len(error.value)} and must be {bound}"
    if kind == "string_too_long":
        return f"it has {len(str(error.value))} characters, and at most {context['max_length']} are allowed"
    if kind == "string_too_short":
        return "it is empty"
    if kind == "finite_number":
        return f"{text} cannot be sent as JSON"
    return f'"{text}" is not allowed'


def _fix(document: Document, error: SchemaError, text: str) -> Correction:
    if error.kind == "literal_error":
        return _choice(error, text)
    bounds, value = error.bounds, error.value
    if _is_about_size(error):
        excess = len(value) - bounds.get("max_length", len(value))
        return Correction(f"remove {excess}" if excess > 0 else "add one")
    if error.at == ("name",) and _as_name(text):
        return Correction(f"write {_as_name(text)}", to_yaml(_as_name(text)))
    if error.kind == "greater_than_equal":
        return Correction(f"write {bounds['ge']} or more")
    if error.kind == "less_than_equal":
        # A time or a size becomes the largest that is allowed. A number of things is for the user to decide.
        is_bound = error.at == ("compute", "max_run") and document.is_written(("spot", "max_wait"))
        is_alone = error.at in UNITS and not is_bound
        return Correction(f"write {bounds['le']} or less", str(bounds["le"]) if is_alone else None)
    return Correction(_expected(error) or _what_fits(error))


def _what_fits(error: SchemaError) -> str:
    """What to write, from the bounds or the pattern of a type without a description."""
    bounds = error.bounds
    if error.kind == "greater_than":
        return f"write more than {bounds['gt']:g}"
    if error.kind == "string_too_short":
        return f"write at least {count(bounds['min_length'], 'character')}"
    if error.kind == "string_too_long":
        return f"shorten it by {count(len(str(error.value)) - bounds['max_length'], 'character')}"
    return "write one line" if bounds.get("pattern") == _ONE_LINE else ""


def _choice(error: SchemaError, text: str) -> Correction:
    choices = str(error.bounds["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
    match = closest(text, choices)
    if match is None:
        return Correction(f"one of: {', '.join(choices)}")
    return Correction(f'did you mean "{match}"?', to_yaml(match))


def _is_about_size(error: SchemaError) -> bool:
    """Whether a list or mapping has too many or too few entries."""
    return error.kind in {"too_long", "too_short"} and isinstance(error.value, dict | list)


def _as_name(text: str) -> str:
    """The valid job name that is closest to ``text``; empty if nothing of it is valid."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", text)[:MAX_NAME].strip("-")


def _expected(error: SchemaError) -> str:
    return f"write {error.expected}" if error.expected else ""


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


def meant_fields(document: Document, errors: list[SchemaError]) -> frozenset[Location]:
    """The fields that unknown keys probably mean: a field with a misspelt name is not missing too."""
    meant: set[Location] = set()
    for one in errors if len(errors) <= _MAX_SUGGESTIONS else ():
        match = closest(str(one.at[-1]), one.keys) if one.kind == "extra_forbidden" else None
        meant.update([(*one.at[:-1], match)] if match else [])
    wrong_place = misplaced.find(document, errors)
    meant.update(wrong_place.values())
    return frozenset(one for one in meant if not document.is_written(one)) | frozenset(wrong_place)
