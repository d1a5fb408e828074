"""Corrections of values with a wrong type or form, if the meaning is certain: 24h is 86400 seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from smdp_launch.jobfile.model import list_forms, schema
from smdp_launch.jobfile.model.derived import (
    bracket_text,
    default_checkpoint_location,
    default_max_wait,
    is_variable,
)
from smdp_launch.jobfile.model.quantities import amount, dollars, plain_number, seconds, size
from smdp_launch.jobfile.model.schema import SchemaError
from smdp_launch.jobfile.model.spec import Checkpoint
from smdp_launch.jobfile.model.types import DAY
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.jobfile.yaml.text import quoted, to_yaml

_SPOT: Location = ("spot",)

#: The unit of a plain number at a location, and the function that reads a number with a unit.
UNITS: dict[Location, tuple[str, Callable[[str], Fraction | None]]] = {
    **dict.fromkeys(
        (
            *(("compute", one) for one in ("max_run", "max_pending", "keep_alive")),
            ("spot", "max_wait"),
            ("sweep", "budget", "max_run"),
            *(("engine_options", one) for one in ("operation_timeout_s", "rendezvous_timeout_s", "heartbeat_s")),
        ),
        ("seconds", seconds),
    ),
    ("compute", "volume_gb"): ("GB", lambda text: size(text, "g")),
    ("script", "source_limit_mb"): ("MB", lambda text: size(text, "m")),
    ("engine_options", "piece_kib"): ("KiB", lambda text: size(text, "k")),
    ("model", "parameters"): ("parameters", amount),
    ("budget", "max_usd"): ("USD", dollars),
    ("budget", "max_usd_per_week"): ("USD", dollars),
    ("sweep", "budget", "max_usd"): ("USD", dollars),
}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_MAX_TEXT = 1024
#: Partitions and the prefix of their regions' names; all other regions are in the partition aws.
_PARTITIONS = {"aws-cn": "cn-", "aws-us-gov": "us-gov-"}
# In an address, a key with % or ? is encoded or has a query, so it is not the key of an object.
_S3_FORMS = tuple(
    re.compile(one, re.ASCII)
    for one in (
        r"arn:(?P<partition>aws[a-z-]*):s3:::(?P<bucket>[a-z0-9.-]+)(?P<key>/[^\n]*)?",
        r"(?i:s3[an]?):/{1,2}(?P<bucket>[a-z0-9][a-z0-9.-]*)(?P<key>/[^\n]*)?",
        r"https?://(?P<bucket>[a-z0-9.-]+)\.s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?(?P<key>/[^\n%?#]*)?",
        r"https?://s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?/(?P<bucket>[a-z0-9.-]+)(?P<key>/[^\n%?#]*)?",
    )
)
_PLAIN_NUMBER = re.compile(r"\s*[+-]?\d{1,15}(\.\d{1,15})?\s*", re.ASCII)

#: Quotes that keyboards do not have: double, single, and guillemets.
_TYPOGRAPHIC = frozenset("\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb\u2039\u203a")
_REGION = re.compile(
    r"(?P<area>[a-z]{2})-?(?P<special>gov|iso[a-z]?)?-?"
    r"(?P<direction>(?:north|south)(?:east|west)?|east|west|central)-?(?P<number>[0-9])(?P<zone>[a-z])?"
)

#: Sections that accept any text: a number or `true` without quotes is meant as text there.
FREE_TEXT = ("environment", "tags")


class Correction(NamedTuple):
    """How to fix a value: the help of its diagnostic, the parts of a ``fixes.Fix``, and the reason why the value is
    wrong, if that is more than its type or form."""

    help: str
    replacement: str | None = None
    remove: bool = False
    write: Mapping[Location, str] = MappingProxyType({})
    message: str = ""


def correction(document: Document, error: SchemaError) -> Correction | None:
    """How to correct the value at its place; None if the user has to decide."""
    siblings = document.value(error.written[:-1])
    if isinstance(siblings, dict) and any(one is None and str(key)[:1].isdigit() for key, one in siblings.items()):
        return None  # {max_usd: $2,500.00} and {max_run: 2 days, 3:00:00}: YAML ends a value in braces at its comma
    corrections = (one(document, error) for one in _CORRECTIONS)
    return next((one for one in corrections if one is not None), None)


def _spot(document: Document, error: SchemaError) -> Correction | None:
    """``spot: true``."""
    value = error.value
    wanted = _BOOLEANS.get(value.lower()) if isinstance(value, str) else value
    if error.written != _SPOT or not isinstance(wanted, bool):
        return None
    if not wanted:
        return Correction("remove it: a job without `spot:` runs on demand", remove=True)
    at: Location = ("compute", "max_run")
    max_run = document.value(at) if document.is_written(at) else DAY
    if not schema.accepts(at, document.data, max_run):
        return Correction("write `spot: {max_wait: SECONDS}`, with `compute.max_run` or more")
    spot = f"{{max_wait: {default_max_wait(max_run)}}}"
    return _with_checkpoints(document, f"write `spot: {spot}`, the seconds to wait and to run together", spot)


def _with_checkpoints(document: Document, help_: str, spot: str) -> Correction:
    """Spot needs checkpoints. Without ``checkpoint:`` they go below the job's output."""
    if document.is_written(("checkpoint",)):
        return Correction(help_, spot)
    folder = default_checkpoint_location(document)
    if folder is None:
        return Correction(f"{help_}, and add `checkpoint: {{s3: LOCATION}}`")
    add = f"{{s3: {bracket_text(folder)}}}"
    return Correction(f"{help_}, and add `checkpoint: {add}`", spot, write={("checkpoint",): add})


def _section_in_s3(document: Document, error: SchemaError) -> Correction | None:
    """``output: s3://results``, for a section whose only required field is ``s3``."""
    value = error.value
    if not isinstance(value, str) or not value.startswith("s3://") or not error.kind.startswith("model"):
        return None
    if error.written not in {("output",), ("checkpoint",)} and not schema.is_channel(error.written):
        return None
    section = f"{{s3: {bracket_text(error.entry.text)}}}"
    if not schema.accepts((*error.written, "s3"), {**document.data, error.written[0]: {}}, value):
        return None
    return Correction(f"write `{error.written[-1]}: {section}`", section)


def _path_of_checkpoints(document: Document, error: SchemaError) -> Correction | None:
    """``checkpoint: /opt/ml/checkpoints``, the path in the container in place of the section."""
    value, default = error.value, str(Checkpoint.model_fields["path"].default)
    if error.written != ("checkpoint",) or not isinstance(value, str) or not value.startswith("/"):
        return None
    folder = default_checkpoint_location(document)
    location = bracket_text(folder) if folder is not None else "LOCATION"
    path = "" if value.rstrip("/") == default else f", path: {bracket_text(error.entry.text)}"
    section = f"{{s3: {location}{path}}}"
    why = "" if path else f"; {default} is the default path"
    return Correction(f"write `checkpoint: {section}`{why}", section if folder is not None else None)


def _share(document: Document, error: SchemaError) -> Correction | None:
    """``require: 80``, a share without its sign."""
    if (
        error.written != ("network", "require")
        or isinstance(error.value, bool)
        or not isinstance(error.value, int | float)
    ):
        return None
    meant = f"{error.value:g}%"
    return Correction(f"write {meant}", meant) if error.accepts(meant) else None


def _typographic_quotes(document: Document, error: SchemaError) -> Correction | None:
    """``“2.0.1”``, as a word processor writes quotes."""
    value = error.value
    if not isinstance(value, str) or len(value) < 3 or not {value[0], value[-1]} <= _TYPOGRAPHIC:
        return None
    inner, message = value[1:-1], f"the quotes {value[0]} {value[-1]} are part of the text"
    if is_variable(document, error.written):
        return None
    if error.accepts(inner):
        return Correction('use "', quoted(inner), message=message)
    is_number = _PLAIN_NUMBER.fullmatch(inner) is not None and _accepts(error, Fraction(inner))
    return Correction("remove them", plain_number(Fraction(inner)), message=message) if is_number else None


def _region(document: Document, error: SchemaError) -> Correction | None:
    """``us-west2``, or the zone ``us-west-2a``."""
    if error.written != ("region",) or not isinstance(error.value, str):
        return None
    text = re.sub(r"[_\s]", "-", error.value.strip().lower())
    match = _REGION.fullmatch(text)
    if match is None:
        return None
    meant = "-".join(one for one in match.group("area", "special", "direction", "number") if one)
    if not error.accepts(meant):
        return None
    if match["zone"]:
        return Correction(f"write {meant}", meant, message=f"{error.value} is an availability zone")
    return Correction(f"did you mean {meant}?", meant, message=f"{error.value} is not a region")


def _list_of_entries(document: Document, error: SchemaError) -> Correction | None:
    """``tags: [{Key: team, Value: vision}]``."""
    below = (one for at, one in document.entries.items() if at[: len(error.written)] == error.written)
    if error.kind != "dict_type" or not isinstance(error.value, list) or any("${" in one.text for one in below):
        return None
    read = list_forms.as_mapping(error.written, error.value)
    if read is None:
        return None
    is_fix = read.is_exact and error.accepts(read.mapping)
    as_text = {name: str(one) if type(one) is int else one for name, one in read.mapping.items()}
    mapping = as_text if not is_fix and error.accepts(as_text) else read.mapping
    try:
        written = to_yaml(mapping)
    except ValueError:  # a number that is not finite
        return None
    if len(written) > _MAX_TEXT:
        return None
    return Correction(f"write {error.written[-1]}: {written}", written if is_fix else None)


def _list_of_one(document: Document, error: SchemaError) -> Correction | None:
    value = error.value
    if error.kind != "list_type" or not isinstance(value, str):
        return None
    if not error.accepts([value]):
        return None
    items = f"[{bracket_text(error.entry.text)}]"
    return Correction(f"write `{error.written[-1]}: {items}`", items)


def _with_unit(document: Document, error: SchemaError) -> Correction | None:
    name, read = UNITS.get(error.written, ("", None))
    if read is None or not isinstance(error.value, str):
        return None
    number = read(error.value)
    if number is None or not _accepts(error, number):
        return None
    return Correction(f"write {plain_number(number)}, the number of {name} without a unit", plain_number(number))


def _number_in_quotes(document: Document, error: SchemaError) -> Correction | None:
    value = error.value
    if error.kind not in {"int_type", "float_type", "int_from_float"} or isinstance(value, bool):
        return None
    if not isinstance(value, str | float) or not _PLAIN_NUMBER.fullmatch(str(value)):
        return None
    number = Fraction(str(value).strip())
    if not _accepts(error, number):
        return None
    end = ", without quotes" if isinstance(value, str) else ""
    return Correction(f"write {plain_number(number)}{end}", plain_number(number))


def _boolean_in_words(document: Document, error: SchemaError) -> Correction | None:
    value = error.value
    meant = _BOOLEANS.get(value.lower()) if error.kind == "bool_type" and isinstance(value, str) else None
    if meant is None:
        return None
    return Correction(f"write {to_yaml(meant)}", to_yaml(meant))


def _text_without_quotes(document: Document, error: SchemaError) -> Correction | None:
    """``DEBUG: true`` for a field that is text. Numbers have their own code."""
    text = error.entry.text
    if error.kind != "string_type" or not isinstance(error.value, bool) or error.written[0] not in FREE_TEXT:
        return None
    if not error.accepts(text):
        return None
    return Correction(f'put quotes around it: "{text}"', f'"{text}"')


def _as_version(document: Document, error: SchemaError) -> Correction | None:
    """``py310``, the SDK's form of a Python version."""
    match = re.fullmatch(r"py(3)(\d{1,2})", str(error.value), re.ASCII)
    if error.written != ("framework", "python") or match is None:
        return None
    return Correction(f'write "{match[1]}.{match[2]}"', f'"{match[1]}.{match[2]}"')


def _as_instance_type(document: Document, error: SchemaError) -> Correction | None:
    """``p4d.24xlarge``, EC2's name of an instance type."""
    is_type = error.written == ("compute", "instance_type") or error.written[:2] == ("compute", "fallback_types")
    meant = f"ml.{str(error.value).removeprefix('ml.')}".lower()
    if not is_type or error.kind != "string_pattern_mismatch" or not error.accepts(meant):
        return None
    return Correction(f"write {meant}", meant)


def _as_location(document: Document, error: SchemaError) -> Correction | None:
    """An S3 location as an ARN, as an HTTP address, in another program's form, or with spaces around it."""
    value = error.value
    if error.written[-1] != "s3" or not isinstance(value, str) or len(value) > _MAX_TEXT:
        return None
    text = value.strip()
    match = next((one for form in _S3_FORMS if (one := form.fullmatch(text)) is not None), None)
    # In policies, an ARN ends in *.
    meant = f"s3://{match['bucket']}{(match['key'] or '').rstrip('*')}" if match is not None else text
    if is_variable(document, error.written) or not error.accepts(meant):
        return None
    region = str(document.value(("region",)))
    other = _other_place(match.groupdict(), region) if match is not None else None
    if other is not None:
        return Correction(f"this bucket is in {other}: write one in {region}, as s3://BUCKET/KEY")
    return Correction(f"write {meant}", to_yaml(meant))


def _other_place(parts: Mapping[str, str | None], region: str) -> str | None:
    """The partition or region in an ARN or an address, if the job is in another."""
    special = (name for name, prefix in _PARTITIONS.items() if region.startswith(prefix))
    if parts.get("partition") not in (None, next(special, "aws")):
        return parts["partition"]
    return parts["region"] if parts.get("region") not in (None, region) else None


def _volume(document: Document, error: SchemaError) -> Correction | None:
    """More than any volume has. There is no edit: the largest volume is still too small for the data."""
    if error.written != ("compute", "volume_gb") or error.kind != "less_than_equal":
        return None
    largest = error.bounds["le"]
    return Correction(f"write {largest} or less, or read the data while training (`mode: FastFile`, or FSx)")


_CORRECTIONS = (
    _typographic_quotes,
    _region,
    _list_of_entries,
    _as_location,
    _volume,
    _spot,
    _section_in_s3,
    _path_of_checkpoints,
    _share,
    _list_of_one,
    _with_unit,
    _number_in_quotes,
    _boolean_in_words,
    _text_without_quotes,
    _as_version,
    _as_instance_type,
)


def _accepts(error: SchemaError, number: Fraction) -> bool:
    value = int(number) if number.denominator == 1 else float(number)
    return error.accepts(value)
