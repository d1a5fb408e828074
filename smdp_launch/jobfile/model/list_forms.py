"""Lists in place of mappings: those of SageMaker's requests, such as ``[{Key: team, Value: vision}]``, and lists with
one mapping for each entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.secret_forms import says_secret

#: The keys of the name and the value of an entry in a request, in lower case.
_REQUEST_KEYS: dict[Location, tuple[str, str]] = {
    ("tags",): ("key", "value"),
    ("metrics",): ("name", "regex"),
    ("environment",): ("name", "value"),
    ("script", "hyperparameters"): ("name", "value"),
}
_CHANNELS: Location = ("channels",)
#: What a request says of a channel besides its name and location; with these values, the channel has it by default.
_CHANNEL_DEFAULTS = {"S3DataType": "S3Prefix", "S3DataDistributionType": "FullyReplicated"}

#: What to write in place of a list that cannot be read.
EXAMPLES: dict[Location, str] = {
    _CHANNELS: "{train: {s3: s3://BUCKET/PREFIX}}",
    **dict.fromkeys(_REQUEST_KEYS, "{NAME: VALUE}"),
}


class Read(NamedTuple):
    """The mapping that a list means, and whether it contains everything of the list."""

    mapping: dict[str, Any]
    is_exact: bool = True


def as_mapping(location: Location, items: Sequence[Any]) -> Read | None:
    """The mapping that ``items`` at ``location`` mean; None if the list cannot be read, or may contain a secret."""
    if location not in EXAMPLES or not items:
        return None
    entries = [_entry(location, one) for one in items]
    read = [one for one in entries if one is not None]
    mapping = {name: value for name, value, _ in read}
    if len(mapping) < len(items) or any(says_secret(name) for name in mapping):
        return None
    return Read(mapping, all(is_exact for _, _, is_exact in read))


def _entry(location: Location, item: Any) -> tuple[str, Any, bool] | None:
    """The name and the value of one item, and whether they are all of it."""
    if not isinstance(item, dict):
        return None
    if len(item) == 1:
        ((name, value),) = item.items()
        return str(name), value, True
    by_name = {str(key).lower(): value for key, value in item.items()}
    if location == _CHANNELS:
        return _channel(item, by_name)
    name_key, value_key = _REQUEST_KEYS[location]
    if set(by_name) != {name_key, value_key} or not isinstance(by_name[name_key], str):
        return None
    return by_name[name_key], by_name[value_key], True


def _channel(item: dict[str, Any], by_name: dict[str, Any]) -> tuple[str, Any, bool] | None:
    if isinstance(item.get("name"), str):
        return item["name"], {key: value for key, value in item.items() if key != "name"}, True
    source = by_name.get("datasource")
    described = source.get("S3DataSource") if isinstance(source, dict) else None
    name = by_name.get("channelname")
    if not isinstance(name, str) or not isinstance(described, dict) or not isinstance(described.get("S3Uri"), str):
        return None
    others = {key: value for key, value in described.items() if key != "S3Uri"}
    is_exact = len(by_name) == 2 and others.items() <= _CHANNEL_DEFAULTS.items()
    return name, {"s3": described["S3Uri"]}, is_exact
