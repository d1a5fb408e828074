"""The server process: one port on loopback, alive as long as somebody needs it."""

from __future__ import annotations

import io
import os
import resource
import secrets
import signal
import sys
import tempfile
import threading
import time
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import BaseWSGIServer

from smdp_launch.localcloud.account import AccountFile
from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.files import Lock, read_json, write_json
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.protocol import wsgi
from smdp_launch.localcloud.protocol.injected_refusals import Refusals
from smdp_launch.localcloud.protocol.principals import Principals
from smdp_launch.localcloud.protocol.signatures import Credentials
from smdp_launch.localcloud.server.connections import Connection, Connections, Incoming
from smdp_launch.localcloud.server.gateway import Gateway
from smdp_launch.localcloud.server.table import services
from smdp_launch.localcloud.services.registry import Registry
from smdp_launch.localcloud.services.s3.permissions import Permissions
from smdp_launch.localcloud.services.s3.store import ObjectStore
from smdp_launch.localcloud.services.training.job_store import JobStore
from smdp_launch.signal_flag import SignalFlag

ADDRESS = "127.0.0.1"
_TICK = 0.1  # seconds between looks at jobs and clients
_LOCK_WAIT = 5.0  # seconds for whoever only tests the lock to let go of it
_SILENCE = 30.0  # seconds without a byte of a large body, or without room for the answer, until a connection is closed


class RequestHandler(MotoRequestHandler):
    """Hands on the request exactly as it came, which is what was signed, and waits for no client for long."""

    timeout = _SILENCE
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        connection: Connection = self.request
        self.request = connection.socket
        super().setup()
        self.rfile.close()
        self._incoming = Incoming(connection)
        self.rfile = io.BufferedReader(self._incoming)

    def send_response(self, code: int, message: str | None = None) -> None:
        self._incoming.end()  # what a client sends of a refused body is read by `Connections`, which waits for nobody
        super().send_response(code, message)

    def handle_expect_100(self) -> bool:
        """Leave it to the gateway: a refused request must not be asked for its body."""
        return True

    def make_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().make_environ()
        environ[wsgi.HEADERS] = list(self._received)
        environ[wsgi.TARGET] = self.path
        environ[wsgi.INPUT] = self.rfile  # that of WSGI is read by werkzeug, without bounds, if it is chunked
        environ[wsgi.CONTINUE] = self._continue
        return environ

    def run_wsgi(self) -> None:
        self._received = self.headers.items()
        self._expects = self.headers.get("Expect", "").lower() == "100-continue"
        del self.headers["Expect"]
        super().run_wsgi()

    def _continue(self) -> None:
        if self._expects:
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Requests are not logged: keys and job names are nobody's business, and polling would fill the disk."""


class Server(BaseWSGIServer):
    """Its threads are those of `Connections`, not one for each request."""

    multithread = True
    request_queue_size = 1024

    def __init__(self, port: int, gateway: Gateway) -> None:
        super().__init__(ADDRESS, port, gateway, RequestHandler)
        self._connections = Connections(self.socket, self._answer)

    def _answer(self, connection: Connection) -> None:
        self.finish_request(connection, connection.address)  # type: ignore[arg-type] # RequestHandler takes it apart

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        self._connections.run()

    def shutdown(self) -> None:
        self._connections.end()


def serve(state: StateFolder) -> int:
    """Run until nobody needs the server, or until SIGTERM; the exit status."""
    ended = SignalFlag()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    state.prepare()
    lock = Lock(state.server_lock)
    if not lock.wait(time.monotonic() + _LOCK_WAIT):
        sys.stderr.write(f"another server runs on {state.root}\n")
        return 75
    previous = read_json(state.server_file)
    state.server_file.unlink(missing_ok=True)
    _settle(state)
    credentials = _credentials(previous)
    jobs = JobStore(state, credentials)
    registry = Registry(state.registry)
    account = AccountFile(state.root)
    principals = Principals(account, state)
    actions = services(jobs, registry, account, principals)
    objects = ObjectStore(state.objects, Permissions(principals))
    gateway = Gateway(credentials, actions, objects, Refusals(state), state.spool)
    server = _bind(gateway, previous)
    gateway.authority = f"{ADDRESS}:{server.port}"
    jobs.endpoint_url = f"http://{gateway.authority}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    write_json(
        state.server_file,
        {
            "url": jobs.endpoint_url,
            "access_key": credentials.access_key,
            "secret_key": credentials.secret_key,
            "region": REGION,
            "pid": os.getpid(),
        },
    )
    _watch(state, jobs, registry, ended)
    registry.close()
    if not jobs.active():  # else the next server goes on with address and keys, which the jobs know
        state.server_file.unlink(missing_ok=True)
    server.shutdown()
    return 0


def _watch(state: StateFolder, jobs: JobStore, registry: Registry, ended: SignalFlag) -> None:
    """Look after the jobs and the registry until nobody needs the server.

    That is when no job runs, it is not announced and no client holds the clients' lock. Returns holding that lock:
    a client that comes now waits for the end of this server and starts another.
    """
    while not ended.wait(_TICK):
        jobs.reap()
        registry.look()
        if not jobs.active() and not state.is_announced and _is_last(state):
            return


def _is_last(state: StateFolder) -> bool:
    clients = Lock(state.clients_lock)
    # Whoever announces the server holds the lock meanwhile, so there is no announcement to miss once it is ours.
    if clients.take() and not state.is_announced:
        return True
    clients.release()
    return False


def _settle(state: StateFolder) -> None:
    """Temporary files into the state directory, and room for as many of them as the system allows."""
    for leftover in state.spool.iterdir():
        leftover.unlink()
    tempfile.tempdir = str(state.spool)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _credentials(previous: Any) -> Credentials:
    """Those of a server that was killed, so that its running jobs can go on talking to us; else new ones."""
    if previous:
        return Credentials(previous["access_key"], previous["secret_key"])
    return Credentials("LOCAL" + secrets.token_hex(8).upper(), secrets.token_urlsafe(30))


def _bind(gateway: Gateway, previous: Any) -> Server:
    if previous:
        try:
            return Server(int(previous["url"].rpartition(":")[2]), gateway)
        except (SystemExit, ValueError):
            sys.stderr.write("the port of the server that was killed is taken; a new one is used\n")
    return Server(0, gateway)
