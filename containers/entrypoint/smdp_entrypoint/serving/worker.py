"""`python -m smdp_entrypoint.serving.worker FD OPTIONS` loads the model and answers one request after the other.

`serve` starts it with one end of a pair of sockets. The worker reports that it is ready, or why it cannot be, and then
reads requests until `serve` closes its end.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, Mapping

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.serving.handlers import Handlers
from smdp_entrypoint.serving.messages import Request, receive, send


def main(argv: list[str]) -> int:
    # Another worker's lines must not begin in the middle of a line of this worker.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # `serve` ends its workers once their requests are answered. Ctrl-C in a terminal reaches all processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options: Mapping[str, Any] = json.loads(argv[1])
    with socket.socket(fileno=int(argv[0])) as connection, contextlib.suppress(EOFError, ConnectionError):
        handlers = _loaded(options, connection)
        if handlers is None:
            return 1
        while True:
            head, body = receive(connection)
            answer = handlers.answer(Request(body, head["headers"]))
            send(connection, answer.head(), answer.body)
    return 0


def _loaded(options: Mapping[str, Any], connection: socket.socket) -> Handlers | None:
    script = Path(options["script"]) if options["script"] else None
    handlers = Handlers(script, Path(options["model"]), options["accept"], options["gpu"])
    try:
        handlers.load()
    except ProgramError as error:
        cause = error.__cause__
        if cause is not None:
            traceback.print_exception(type(cause), cause, cause.__traceback__)
        send(connection, {"failed": str(error)})
        return None
    send(connection, {"ready": True})
    return handlers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
