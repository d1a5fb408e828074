"""The WSGI environ that the server's request handler, the gateway and the object service pass to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Limit in bytes of a body that is read into memory: that of every call except those that upload objects.
JSON_BODY_LIMIT = 4 * 1024 * 1024
#: Limit in bytes of a request for an endpoint, as on the platform.
INVOCATION_LIMIT = 6 * 1024 * 1024

# Keys of the environ that the request handler adds.
HEADERS = "smdp.headers"
TARGET = "smdp.target"
INPUT = "smdp.input"
CONTINUE = "smdp.continue"
#: Set by the gateway: the principal that signed an object request.
HOLDER = "smdp.holder"

StartResponse = Callable[..., Any]
Environ = dict[str, Any]
