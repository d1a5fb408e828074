"""An image registry over HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


CONFIG: dict[str, Any] = {
    "os": "linux",
    "architecture": "amd64",
    "created": "2026-11-21T00:00:00Z",
    "config": {
        "Env": ["PATH=/usr/bin", "CUDA_VERSION=11.8.0", "PYTORCH_VERSION=2.0.1", "HUB_TOKEN=hush"],
        "Cmd": ["train"],
        "Labels": {"a": "b"},
    },
}


def encoded(document: object) -> bytes:
    return json.dumps(document).encode()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def manifest_of(config: bytes, **changes: Any) -> dict[str, Any]:
    layers = [{"size": 100}, {"size": 23}]
    return {"schemaVersion": 2, "config": {"digest": digest(config)}, "layers": layers, **changes}


Reply = tuple[int, dict[str, str], bytes]


Page = Callable[[BaseHTTPRequestHandler], Reply | None]


class Server:
    """A server with pages by path. ``asked`` has the path and the Authorization header of each request."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, str]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.append((self.path, self.headers.get("Authorization", "")))
                page = owner.pages.get(self.path.partition("?")[0])
                reply = (404, {}, b"") if page is None else page(self)
                if reply is not None:
                    status, headers, body = reply
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(body))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.host = f"127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def put(self, path: str, body: bytes, kind: str = MANIFEST, status: int = 200) -> None:
        self.pages[path] = lambda _: (status, {"Content-Type": kind}, body)

    def put_image(self, config: object = CONFIG, name: str = "image", tag: str = "1") -> str:
        data = config if isinstance(config, bytes) else encoded(config)
        self.put(f"/v2/{name}/blobs/{digest(data)}", data, "application/octet-stream")
        self.put(f"/v2/{name}/manifests/{tag}", encoded(manifest_of(data)))
        return f"{self.host}/{name}:{tag}"

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    opened = Server()
    yield opened
    opened.close()
