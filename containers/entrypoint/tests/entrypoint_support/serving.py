"""`serve` on a temporary tree, and requests to it."""

from __future__ import annotations

import http.client
import json
import socket
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping

from entrypoint_support.host import NETWORK, TIMEOUT_S, Host, wait_until

ADDRESS = f"{NETWORK}.1"


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    content_type: str
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """One `serve`. Its port is free when the test starts it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        host.entrypoint = ["-m", "smdp_entrypoint", "serve"]
        (host.root / "model").mkdir(parents=True)
        self.port = _free_port()

    def script(self, text: str, name: str = "inference.py") -> Path:
        """Write a script into the model's code."""
        path = self.model(f"code/{name}")
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def model(self, name: str) -> Path:
        """The place of a file of the model."""
        path = self.host.root / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def start(self, workers: int = 1, **environ: str) -> Server:
        """Start it, without waiting until it is ready."""
        settings = {
            "SMDP_SERVE_ADDRESS": ADDRESS,
            "SAGEMAKER_BIND_TO_PORT": str(self.port),
            "SAGEMAKER_MODEL_SERVER_WORKERS": str(workers),
        }
        self.host.start(**{**settings, **environ})
        return self

    def serve(self, workers: int = 1, **environ: str) -> Server:
        """Start it and wait until it is ready."""
        self.start(workers, **environ)
        self.await_ready()
        return self

    def run(self, **environ: str) -> int:
        """Start a server that cannot serve; its exit code."""
        return self.start(**environ).host.wait()

    def await_ready(self) -> None:
        def ready_or_ended() -> bool:
            assert self.host.process is not None
            return self.ping() == 200 or self.host.process.poll() is not None

        wait_until(ready_or_ended, "the server to be ready")
        assert self.ping() == 200, self.host.text

    def ping(self) -> int:
        """The status of the health check; 0 if nothing listens."""
        try:
            return self.request("GET", "/ping").status
        except OSError:
            return 0

    def invoke(self, body: bytes | str, content_type: str = "application/json", **headers: str) -> Answer:
        sent = {"Content-Type": content_type} if content_type else {}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        return self.request("POST", "/invocations", body, sent)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | Iterator[bytes] = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=TIMEOUT_S)
        try:
            encoded = body.encode("utf-8") if isinstance(body, str) else body
            connection.request(method, path, encoded, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), answer.getheader("Content-Type", ""), dict(answer.getheaders()))
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind((ADDRESS, 0))
        return int(trial.getsockname()[1])
