"""A receiver of webhooks on loopback."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/services/T000/B000/secretsecretsecret"


class Webhook:
    """Answers with ``statuses`` in turn, the last one again and again; 0 closes the connection without an answer.

    ``messages`` has the JSON of each request.
    """

    def __init__(self, *statuses: int) -> None:
        self.messages: list[Any] = []
        self.paths: list[str] = []
        owner, given = self, list(statuses or (200,))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                owner.paths.append(self.path)
                owner.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                status = given.pop(0) if len(given) > 1 else given[0]
                if status == 0:
                    self.connection.close()
                    return
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}{PATH}"

    def __enter__(self) -> Webhook:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
