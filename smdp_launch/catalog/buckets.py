"""The names that S3 allows for buckets.

The rules are those of "General purpose bucket naming rules" and "Directory bucket naming rules" in the S3 User Guide,
checked 2026-11-23. S3 also accepts access point aliases in place of bucket names.
"""

from __future__ import annotations

import re

from smdp_launch.catalog.regions import partition, regions

_FORM = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}", re.ASCII)
_PREFIXES = {
    "xn--": "encoded domain names",
    "sthree-": "S3 itself",
    "amzn-s3-demo-": "the examples of AWS's documentation",
}
_SUFFIXES = {
    "-s3alias": "access point aliases",
    "--ol-s3": "Object Lambda access points",
    ".mrap": "multi-Region access points, which have no S3 location",
    "--x-s3": "directory buckets, whose names end in --ZONE--x-s3",
    "--table-s3": "table buckets, whose objects cannot be listed",
}
# AWS generates these names. The alias of an access point ends in an ID, which is longer than any word.
_GENERATED = (
    re.compile(r"[a-z0-9-]+-[a-z0-9]{20,}-s3alias", re.ASCII),
    re.compile(r"[a-z0-9-]+-[a-z0-9]{20,}--ol-s3", re.ASCII),
    re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?--[a-z0-9]+(-[a-z0-9]+)*-az\d+--x-s3", re.ASCII),
)
# Zones of the other partitions can have the same IDs.
_WITH_ZONES = ("aws", "aws-cn", "aws-us-gov")
_ZONE = re.compile(r"--(?P<region>[a-z]+\d+)(-[a-z]+\d+)?-az\d+--x-s3$", re.ASCII)


def name_problem(bucket: str) -> str | None:
    """The reason why S3 does not allow this name, such as ``it has two dots in a row``; None if it is allowed."""
    if not 3 <= len(bucket) <= 63:
        return f"it has {len(bucket)} characters, and a name must have 3 to 63"
    if not _FORM.fullmatch(bucket):
        return "a name has lowercase letters, digits, dots and hyphens, and starts and ends with a letter or a digit"
    if ".." in bucket:
        return "it has two dots in a row"
    return "it has the form of an IP address" if _ADDRESS.fullmatch(bucket) else _reserved(bucket)


def region(bucket: str) -> str | None:
    """The region of a directory bucket, whose name contains its zone, such as usw2-az1; None for any other bucket."""
    match = _ZONE.search(bucket)
    public = (one for one in regions() if partition(one) in _WITH_ZONES)
    return next((one for one in public if match is not None and _zone_prefix(one) == match["region"]), None)


def _zone_prefix(region: str) -> str:
    """Such as apne1 for ap-northeast-1 and usgw1 for us-gov-west-1."""
    area, direction, number = region.rsplit("-", 2)
    *country, part = area.split("-")
    named = f"{country[0]}{part[0]}" if country else part
    letters = re.findall("north|south|east|west|central", direction)
    return f"{named}{''.join(one[0] for one in letters)}{number}"


def _reserved(bucket: str) -> str | None:
    prefix = next((one for one in _PREFIXES if bucket.startswith(one)), None)
    if prefix is not None:
        return f"names that start with {prefix} are for {_PREFIXES[prefix]}"
    suffix = next((one for one in _SUFFIXES if bucket.endswith(one)), None)
    if suffix is not None and not any(one.fullmatch(bucket) for one in _GENERATED):
        return f"names that end in {suffix} are for {_SUFFIXES[suffix]}"
    return None
