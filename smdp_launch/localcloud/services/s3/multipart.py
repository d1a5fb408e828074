"""Checksums of multipart uploads: of each part, and of the object that the parts form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import xmltodict

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.services.s3 import digests
from smdp_launch.localcloud.services.s3.digests import COMPOSITE, FULL, Checksum
from smdp_launch.localcloud.services.s3.values import blocks, joined


@dataclass(frozen=True)
class Listed:
    """A part in the request that completes an upload. `checksums` are by algorithm."""

    number: int
    checksums: Mapping[str, str]


def listed(document: bytes) -> list[Listed]:
    """The parts in the well-formed document that completes an upload. Raises ServiceError for parts out of order."""
    parts = xmltodict.parse(document)["CompleteMultipartUpload"]["Part"]
    found = [_listed(part) for part in (parts if isinstance(parts, list) else [parts])]
    if any(one.number >= following.number for one, following in pairwise(found)):
        message = (
            "The list of parts was not in ascending order. The parts list must be specified in order by part number."
        )
        raise ServiceError("InvalidPartOrder", message)
    return found


def _listed(part: Mapping[str, Any]) -> Listed:
    names = [name for name in part if name.startswith("Checksum")]
    return Listed(int(part["PartNumber"]), {name.removeprefix("Checksum"): str(part[name]) for name in names})


def attached(key: Any) -> Checksum | None:
    """The checksum of moto's object or part."""
    if not key.checksum_algorithm or not key.checksum_value:
        return None
    return Checksum(key.checksum_algorithm, key.checksum_value, key.checksum_type or FULL)


def attach(key: Any, checksum: Checksum | None) -> None:
    key.checksum_algorithm = checksum.algorithm if checksum is not None else None
    key.checksum_value = checksum.value if checksum is not None else None
    key.checksum_type = checksum.kind if checksum is not None else None
    key.checksum_parts = None  # `value` contains the number


def algorithm_of(upload: Any) -> str:
    return str(upload.metadata.get("x-amz-checksum-algorithm") or "").upper()


def check_part(upload: Any, checksum: Checksum | None) -> None:
    """Raises ServiceError for a part whose checksum is not of the upload's algorithm."""
    expected = algorithm_of(upload)
    if checksum is not None and expected and checksum.algorithm != expected:
        raise ServiceError(
            "InvalidRequest",
            f"Checksum Type mismatch occurred, expected checksum Type: {expected.lower()}, actual checksum Type: "
            f"{checksum.algorithm.lower()}",
        )


def whole(upload: Any, listed_parts: Sequence[Listed], stated: Mapping[str, str]) -> Checksum | None:
    """The checksum of the object that the parts form; None for an upload without one. Raises ServiceError.

    Args:
        stated: the checksum that the client states, by algorithm.
    """
    parts = [upload.parts.get(one.number) for one in listed_parts]
    if None in parts:
        return None  # moto refuses the completion
    for one, part in zip(listed_parts, parts, strict=True):
        _check_listed(one, attached(part))
    algorithm = algorithm_of(upload) or next(iter(stated), "")
    if not algorithm:
        return None
    kind = digests.check_kind(algorithm, upload.metadata.get("x-amz-checksum-type") or "")
    checksum = _composite(algorithm, parts) if kind == COMPOSITE else _full(algorithm, parts)
    if stated and stated != {algorithm: checksum.value}:
        raise ServiceError("BadDigest", f"The {algorithm} you specified did not match the calculated checksum.")
    return checksum


def _check_listed(one: Listed, checksum: Checksum | None) -> None:
    if checksum is not None and one.checksums and one.checksums != {checksum.algorithm: checksum.value}:
        raise ServiceError(
            "InvalidPart",
            "One or more of the specified parts could not be found. The part may not have been uploaded, or the "
            "specified entity tag may not match the part's entity tag.",
            400,
            {"PartNumber": str(one.number)},
        )


def _composite(algorithm: str, parts: Sequence[Any]) -> Checksum:
    """Compute the checksum of parts without one, such as copied parts."""
    known = (attached(part) or digests.of_blocks(algorithm, blocks(part._value_buffer)) for part in parts)
    return digests.of_parts(algorithm, [one.value for one in known])


def _full(algorithm: str, parts: Sequence[Any]) -> Checksum:
    return digests.of_blocks(algorithm, joined([part._value_buffer for part in parts]))
