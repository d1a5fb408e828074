"""The pages of SageMaker's List calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry import call_with_retries

PAGE = 100  # the service's limit


class Page(NamedTuple):
    """The summaries of one page, and whether it is the last one."""

    summaries: Sequence[Mapping[str, Any]]
    is_last: bool


def newest_first(
    clients: Clients, call: Callable[..., Mapping[str, Any]], field: str, what: str, size: int = PAGE, **arguments: Any
) -> Iterator[Mapping[str, Any]]:
    """The summaries of all pages of `newest_pages`."""
    for page in newest_pages(clients, call, field, what, size, **arguments):
        yield from page.summaries


def newest_pages(
    clients: Clients, call: Callable[..., Mapping[str, Any]], field: str, what: str, size: int = PAGE, **arguments: Any
) -> Iterator[Page]:
    """The pages of a List call with the summaries in ``field``, the newest resource first.

    Args:
        what: as of `call_with_retries`, which raises for each page.
        size: of a page, at most.
    """
    token: dict[str, str] = {}
    arguments |= {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": size}
    while True:
        answer = call_with_retries(clients, what, partial(call, **arguments, **token))
        yield Page(answer[field], "NextToken" not in answer)
        if "NextToken" not in answer:
            return
        token = {"NextToken": answer["NextToken"]}
