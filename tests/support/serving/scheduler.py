"""A server of EventBridge Scheduler's calls for one schedule, which no local cloud has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.services.threaded import answering


class Scheduler:
    """``schedules`` has the requests by name; ``refuses`` is the error of every creation."""

    def __init__(self) -> None:
        self.schedules: dict[str, Any] = {}
        self.refuses: str | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"scheduler": self}))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Scheduler]:
        with answering(self._server):
            yield self


class _Handler(BaseHTTPRequestHandler):
    scheduler: Scheduler
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.scheduler.refuses is not None:
            self._answer(400, {"Message": self.scheduler.refuses}, "ValidationException")
            return
        self.scheduler.schedules[self._name] = body
        self._answer(200, {"ScheduleArn": "arn:aws:scheduler:us-east-1:123456789012:schedule/default/x"})

    def do_DELETE(self) -> None:
        if self.scheduler.schedules.pop(self._name, None) is None:
            self._answer(404, {"Message": f"Schedule {self._name} does not exist."}, "ResourceNotFoundException")
        else:
            self._answer(200, {})

    @property
    def _name(self) -> str:
        return self.path.partition("?")[0].rpartition("/")[2]

    def _answer(self, status: int, body: dict[str, str], code: str | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response_only(status)
        if code is not None:
            self.send_header("x-amzn-ErrorType", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass
