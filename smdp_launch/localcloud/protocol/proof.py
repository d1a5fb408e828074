"""The server's proof that it has the secret key of its state folder. A client requests it before any other call.

The port of a server that died may belong to another user by now. The client sends a random number, and the server
answers with a keyed hash of that number and of its own address. The answer reveals nothing about the key.
"""

from __future__ import annotations

import hmac
import re
import secrets

from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.protocol.signatures import Credentials, Head

_FOLDER = "/_proof/"  # no bucket can have this name
_PATH = re.compile(rf"{_FOLDER}[0-9a-f]{{32}}")
_TIMEOUT = 10.0  # seconds for the answer of a busy server


def is_requested(head: Head) -> bool:
    return head.path.startswith(_FOLDER)


def answer(head: Head, credentials: Credentials) -> bytes:
    """The proof, for any client. The gateway has checked that the Host header is the server's own address."""
    if head.method != "GET" or _PATH.fullmatch(head.path) is None:
        raise ServiceError("InvalidURI", f"A proof is requested with GET {_FOLDER} and 32 hexadecimal digits.")
    return _proof(credentials, head.one("host"), head.path)


def is_proved(url: str, credentials: Credentials) -> bool:
    """Whether the server at `url` has these credentials; also False where no server answers."""
    from http.client import HTTPConnection, HTTPException  # slow to import, and needed only where a server runs

    address, path = url.removeprefix("http://"), f"{_FOLDER}{secrets.token_hex(16)}"
    expected = _proof(credentials, address, path)
    try:
        connection = HTTPConnection(address, timeout=_TIMEOUT)
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
