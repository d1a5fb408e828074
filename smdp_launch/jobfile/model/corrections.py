"""What a value of the wrong type or form was meant to be, where that is certain: 24h is 86400 seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from pydantic_core import ErrorDetails

from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.derived import as_written, checkpoints_beside, is_variable, longest_wait, value_at
from smdp_launch.jobfile.model.quantities import dollars, plain_number, seconds, size
from smdp_launch.jobfile.model.types import DAY
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.jobfile.yaml.text import written

_SPOT: Location = ("spot",)

#: What a plain number means at a location, for those who write it with a unit.
UNITS: dict[Location, tuple[str, Callable[[str], Fraction | None]]] = {
    **dict.fromkeys(
        (
            *(("compute", one) for one in ("max_run", "max_pending", "keep_alive")),
            ("spot", "max_wait"),
            *(("engine_options", one) for one in ("operation_timeout_s", "rendezvous_timeout_s", "heartbeat_s")),
        ),
        ("seconds", seconds),
    ),
    ("compute", "volume_gb"): ("GB", lambda text: size(text, "g")),
    ("script", "source_limit_mb"): ("MB", lambda text: size(text, "m")),
    ("engine_options", "piece_kib"): ("KiB", lambda text: size(text, "k")),
    ("budget", "max_usd"): ("USD", dollars),
}
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LONGEST_LOCATION = 1024
#: Those with names of regions that tell them from the rest.
_PARTITIONS = {"aws-cn": "cn-", "aws-us-gov": "us-gov-"}
# A key with % or ? in an address is not what it looks like.
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


_REST_OF_NUMBER = re.compile(r"\d{3}(\.\d+)?", re.ASCII)


#: Where any text may be, so that a number or true without quotes is meant as it is.
FREE_TEXT = ("environment", "tags")


class Correction(NamedTuple):
    """How to fix a value: what the help says, and what ``fixes.edits_for`` makes edits of."""

    help: str
    replacement: str | None = None
    remove: bool = False
    write: Mapping[Location, str] = MappingProxyType({})


def correction(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """What the value at ``location`` was meant to be; None where a person has to say."""
    beside = value_at(document, location[:-1])
    if isinstance(beside, dict) and any(_REST_OF_NUMBER.fullmatch(str(one)) for one in beside):
        return None  # {max_usd: $2,500.00}: YAML ends a value in braces at its comma
    made = (one(document, location, error) for one in _CORRECTIONS)
    return next((one for one in made if one is not None), None)


# -- one by one -------------------------------------------------------------------------------------------------------


def _spot(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """``spot: true``."""
    value = error["input"]
    wanted = _WORDS.get(value.lower()) if isinstance(value, str) else value
    if location != _SPOT or not isinstance(wanted, bool):
        return None
    if not wanted:
        return Correction("leave it out: a job without `spot:` runs on demand", remove=True)
    max_run = value_at(document, ("compute", "max_run"), DAY)
    if not schema.accepts(("compute", "max_run"), document.data, max_run):
        return Correction("write `spot: {max_wait: SECONDS}`, at least `compute.max_run`")
    made = f"{{max_wait: {longest_wait(max_run)}}}"
    return _with_checkpoints(document, f"write `spot: {made}`, the seconds for waiting and running together", made)


def _with_checkpoints(document: Document, help_: str, spot: str) -> Correction:
    """Spot needs checkpoints, which are below the results of the job where it has no other place for them."""
    if document.written(("checkpoint",)):
        return Correction(help_, spot)
    folder = checkpoints_beside(document)
    if folder is None:
        return Correction(f"{help_}, and add `checkpoint: {{s3: LOCATION}}`")
    add = f"{{s3: {as_written(folder)}}}"
    return Correction(f"{help_}, and add `checkpoint: {add}`", spot, write={("checkpoint",): add})


def _section_in_s3(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """``output: s3://results`` for a section whose only needed field that is."""
    value = error["input"]
    if not isinstance(value, str) or not value.startswith("s3://") or not error["type"].startswith("model"):
        return None
    if location not in {("output",), ("checkpoint",)} and not schema.is_channel(location):
        return None
    made = f"{{s3: {as_written(document.entry(location).text)}}}"
    if not schema.accepts((*location, "s3"), {**document.data, location[0]: {}}, value):
        return None
    return Correction(f"write `{location[-1]}: {made}`", made)


def _one_of_a_list(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    value = error["input"]
    if error["type"] != "list_type" or not isinstance(value, str):
        return None
    if not schema.accepts(location, document.data, [value]):
        return None
    made = f"[{as_written(document.entry(location).text)}]"
    return Correction(f"write `{location[-1]}: {made}`", made)


def _with_unit(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    name, read = UNITS.get(location, ("", None))
    if read is None or not isinstance(error["input"], str):
        return None
    found = read(error["input"])
    if found is None or not _accepts(document, location, found):
        return None
    return Correction(f"write {plain_number(found)}, a number of {name} without a unit", plain_number(found))


def _number_in_quotes(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    value = error["input"]
    if error["type"] not in {"int_type", "float_type", "int_from_float"} or isinstance(value, bool):
        return None
    if not isinstance(value, str | float) or not _PLAIN_NUMBER.fullmatch(str(value)):
        return None
    found = Fraction(str(value).strip())
    if not _accepts(document, location, found):
        return None
    end = ", without quotes" if isinstance(value, str) else ""
    return Correction(f"write {plain_number(found)}{end}", plain_number(found))


def _truth_in_words(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    value = error["input"]
    found = _WORDS.get(value.lower()) if error["type"] == "bool_type" and isinstance(value, str) else None
    if found is None:
        return None
    return Correction(f"write {written(found)}", written(found))


def _text_without_quotes(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """``DEBUG: true`` where text is needed. Numbers have a code of their own."""
    text = document.entry(location).text
    if error["type"] != "string_type" or not isinstance(error["input"], bool) or location[0] not in FREE_TEXT:
        return None
    if not schema.accepts(location, document.data, text):
        return None
    return Correction(f'put quotes around it: "{text}"', f'"{text}"')


def _as_version(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """``py310``, as the SDK calls it."""
    found = re.fullmatch(r"py(3)(\d{1,2})", str(error["input"]), re.ASCII)
    if location != ("framework", "python") or found is None:
        return None
    return Correction(f'write "{found[1]}.{found[2]}"', f'"{found[1]}.{found[2]}"')


def _as_instance_type(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """``p4d.24xlarge``, as EC2 calls it."""
    is_type = location == ("compute", "instance_type") or location[:2] == ("compute", "fallback_types")
    meant = f"ml.{str(error['input']).removeprefix('ml.')}".lower()
    if not is_type or error["type"] != "string_pattern_mismatch" or not schema.accepts(location, document.data, meant):
        return None
    return Correction(f"write {meant}", meant)


def _as_location(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """A place in S3 as an ARN, as an address or as another program calls it, or with blanks around it."""
    value = error["input"]
    if location[-1] != "s3" or not isinstance(value, str) or len(value) > _LONGEST_LOCATION:
        return None
    text = value.strip()
    found = next((one for form in _S3_FORMS if (one := form.fullmatch(text)) is not None), None)
    # Policies end an ARN in *.
    meant = f"s3://{found['bucket']}{(found['key'] or '').rstrip('*')}" if found is not None else text
    if is_variable(document, location) or not schema.accepts(location, document.data, meant):
        return None
    region = str(value_at(document, ("region",)))
    elsewhere = _elsewhere(found.groupdict(), region) if found is not None else None
    if elsewhere is not None:
        return Correction(f"this one is in {elsewhere}: name a bucket in {region}, as s3://BUCKET/KEY")
    return Correction(f"write {meant}", written(meant))


def _elsewhere(parts: Mapping[str, str | None], region: str) -> str | None:
    """The partition or region that an ARN or an address names, if the job is in another."""
    others = (name for name, prefix in _PARTITIONS.items() if region.startswith(prefix))
    if parts.get("partition") not in (None, next(others, "aws")):
        return parts["partition"]
    return parts["region"] if parts.get("region") not in (None, region) else None


def _volume(document: Document, location: Location, error: ErrorDetails) -> Correction | None:
    """More than any volume has: the largest would be no more right, and hosts with disks of their own have less."""
    if location != ("compute", "volume_gb") or error["type"] != "less_than_equal":
        return None
    largest = error["ctx"]["le"]
    return Correction(f"write {largest} or less, or read the data while training (`mode: FastFile`, or FSx)")


_CORRECTIONS = (
    _as_location,
    _volume,
    _spot,
    _section_in_s3,
    _one_of_a_list,
    _with_unit,
    _number_in_quotes,
    _truth_in_words,
    _text_without_quotes,
    _as_version,
    _as_instance_type,
)


def _accepts(document: Document, location: Location, number: Fraction) -> bool:
    value = int(number) if number.denominator == 1 else float(number)
    return schema.accepts(location, document.data, value)
