"""Pages of answers, and the tokens that name the next page."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.requests import Parameters


def numbered_page(
    items: Sequence[Any], request: Parameters, size: int, invalid: ServiceError
) -> tuple[Sequence[Any], dict[str, str]]:
    """The page that NextToken names, and the answer's NextToken unless it is the last page.

    Args:
        size: of a page, where the request has no MaxResults.
        invalid: raised for a token that is not a number.
    """
    token = request.get("NextToken", "0")
    if not (token.isascii() and token.isdecimal() and len(token) < 10):
        raise invalid
    start = int(token)
    end = start + int(request.get("MaxResults", size))
    return items[start:end], {"NextToken": str(end)} if end < len(items) else {}


def encode_token(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def decode_token(token: str, invalid: ServiceError) -> Any:
    """The value in a client's token, which may be any JSON. Raises `invalid` for text that `encode_token` never
    returns."""
    try:
        return json.loads(base64.urlsafe_b64decode(token))
    except (ValueError, RecursionError):
        raise invalid from None
