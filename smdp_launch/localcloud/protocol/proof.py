"""The server's proof that it has the secret of its state folder, which a client asks for before it sends anything.

The port of a server that died may be another user's by now. The client draws a number, and the server answers with a
keyed hash of it and of its own address. Whoever asks learns nothing from that.
"""

from __future__ import annotations

import hmac
import re
import secrets

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.signatures import Credentials, Head

_FOLDER = "/_proof/"  # no bucket can have this name
_PATH = re.compile(rf"{_FOLDER}[0-9a-f]{{32}}")
_ANSWER = 10.0  # seconds for an answer of a server that has much to do


def is_asked_for(head: Head) -> bool:
    return head.path.startswith(_FOLDER)


def answer(head: Head, credentials: Credentials) -> bytes:
    """To anyone; the request's Host header is known to be the server's own address."""
    if head.method != "GET" or _PATH.fullmatch(head.path) is None:
        raise ServiceError("InvalidURI", f"A proof is asked for with GET {_FOLDER} and 32 hexadecimal digits.")
    return _proof(credentials, head.one("host"), head.path)


def is_proved(url: str, credentials: Credentials) -> bool:
    """Whether the server at `url` has these credentials; False too where none answers."""
    from http.client import HTTPConnection, HTTPException  # a command that meets no server needs none of it

    address, path = url.removeprefix("http://"), f"{_FOLDER}{secrets.token_hex(16)}"
    expected = _proof(credentials, address, path)
    try:
        connection = HTTPConnection(address, timeout=_ANSWER)
        try:
            connection.request("GET", path)
            received = connection.getresponse().read(len(expected) + 1)
        finally:
            connection.close()
    except (OSError, HTTPException):
        return False
    return hmac.compare_digest(received, expected)


def _proof(credentials: Credentials, address: str, path: str) -> bytes:
    return credentials.derived(f"proof of {address}{path}").encode()
