"""Lists of resources: the filters, orders and pages that the List calls of SageMaker share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.protocol.requests import Parameters
from smdp_launch.localcloud.services.paging import decode_token, encode_token

_PAGE = 10  # entries, as the service does without MaxResults
_TEXTS = ("Name", "Status")


@dataclass(frozen=True)
class Entry:
    """A resource in a list. `summary` is its entry in the answer; times are seconds since 1970."""

    name: str
    created: float
    summary: dict[str, Any]
    modified: float = 0.0
    status: str = ""

    def key(self, by: str) -> tuple[str | float, str]:
        """The entry's place in the list. The next page begins after it, whatever is created or deleted meanwhile."""
        texts = {"Name": self.name, "Status": self.status}
        return texts.get(by, self.modified if by == "LastModifiedTime" else self.created), self.name


def listed(entries: Iterable[Entry], request: Parameters) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The summaries of the requested page, and the answer's NextToken unless it is the last page.

    Without SortOrder the order is descending, as in ListModels, ListEndpointConfigs and ListEndpoints.
    """
    by, descending = request.get("SortBy", "CreationTime"), request.get("SortOrder") != "Ascending"
    keyed = sorted(((one.key(by), one) for one in entries if _matches(one, request)), key=lambda pair: pair[0])
    if descending:
        keyed.reverse()
    if "NextToken" in request:
        last = _read_token(request["NextToken"], by)
        keyed = [pair for pair in keyed if (pair[0] < last if descending else pair[0] > last)]
    size = int(request.get("MaxResults", _PAGE))
    following = {"NextToken": encode_token(keyed[size - 1][0])} if size < len(keyed) else {}
    return [one.summary for _, one in keyed[:size]], following


def _matches(entry: Entry, request: Parameters) -> bool:
    times = {"CreationTime": entry.created, "LastModifiedTime": entry.modified}
    return (
        request.get("NameContains", "").lower() in entry.name.lower()
        and request.get("StatusEquals") in (None, entry.status)
        and all(time > request.get(f"{one}After", float("-inf")) for one, time in times.items())
        and all(time < request.get(f"{one}Before", float("inf")) for one, time in times.items())
    )


def _read_token(token: str, by: str) -> tuple[str | float, str]:
    match decode_token(token, _invalid()):
        case [str() | int() | float() as first, str(name)] if isinstance(first, str) == (by in _TEXTS):
            return first, name
    raise _invalid()


def _invalid() -> ServiceError:
    return validation("Invalid NextToken.")
