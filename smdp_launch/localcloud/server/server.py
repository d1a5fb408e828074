"""The server process: one port on loopback, which runs as long as a client or a job needs it."""

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
from smdp_launch.localcloud.server.gateway import INVOCATIONS, Gateway
from smdp_launch.localcloud.server.table import Running, invocation, services
from smdp_launch.localcloud.services.registry import Registry
from smdp_launch.localcloud.services.s3.permissions import Permissions
from smdp_launch.localcloud.services.s3.store import ObjectStore
from smdp_launch.localcloud.services.serving.endpoint_store import EndpointStore
from smdp_launch.localcloud.services.serving.transforms import TransformService
from smdp_launch.localcloud.services.training.job_store import JobStore
from smdp_launch.localcloud.services.tuning.calls import TuningService
from smdp_launch.signals.flag import SignalFlag

ADDRESS = "127.0.0.1"
_TICK = 0.1  # seconds between checks of the jobs and clients
_LOCK_WAIT = 5.0  # seconds for processes that only test the lock to release it
_ENDPOINT_GRACE = 2.0  # seconds between SIGTERM and SIGKILL, once no client waits for an answer
_IDLE_TIMEOUT = 30.0  # seconds in which a connection receives no byte of a large body, or sends none of the answer


class RequestHandler(MotoRequestHandler):
    """Passes on the request exactly as received, which is what the client signed. Closes idle connections."""

    timeout = _IDLE_TIMEOUT
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        connection: Connection = self.request
        self.request = connection.socket
        super().setup()
        self.rfile.close()
        self._incoming = Incoming(connection)
        self.rfile = io.BufferedReader(self._incoming)

    def send_response(self, code: int, message: str | None = None) -> None:
        self._incoming.end()  # `Connections` reads the rest of a refused body, without occupying a thread
        super().send_response(code, message)

    def handle_expect_100(self) -> bool:
        """Leave `100 Continue` to the gateway: a refused request must not send its body."""
        return True

    def make_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().make_environ()
        environ[wsgi.HEADERS] = list(self._received)
        environ[wsgi.TARGET] = self.path
        environ[wsgi.INPUT] = self.rfile  # `wsgi.input` is werkzeug's, which reads chunked bodies without a limit
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
        """Log nothing: keys and job names are private, and polling clients would fill the disk."""


class Server(BaseWSGIServer):
    """Uses the threads of `Connections`, not one thread for each request."""

    multithread = True
    request_queue_size = 1024

    def __init__(self, port: int, gateway: Gateway) -> None:
        super().__init__(ADDRESS, port, gateway, RequestHandler)
        self._connections = Connections(self.socket, self._answer, INVOCATIONS)

    def _answer(self, connection: Connection) -> None:
        self.finish_request(connection, connection.address)  # type: ignore[arg-type] # RequestHandler takes it apart

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        self._connections.run()

    def shutdown(self) -> None:
        self._connections.end()


def serve(state: StateFolder) -> int:
    """Run until no client and no job needs the server, or until SIGTERM; the exit status."""
    ended = SignalFlag()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    state.prepare()
    lock = Lock(state.server_lock)
    if not lock.wait(time.monotonic() + _LOCK_WAIT):
        sys.stderr.write(f"another server runs on {state.root}\n")
        return 75
    previous = read_json(state.server_file)
    state.server_file.unlink(missing_ok=True)
    _prepare_process(state)
    credentials = _credentials(previous)
    jobs = JobStore(state, credentials)
    running = Running(jobs, EndpointStore(state), TransformService(state), TuningService(state, jobs))
    registry = Registry(state.registry)
    account = AccountFile(state.root)
    principals = Principals(account, state)
    actions = services(running, registry, account, principals)
    objects = ObjectStore(state.objects, Permissions(principals))
    invoke = invocation(running.endpoints, principals)
    gateway = Gateway(credentials, actions, objects, invoke, Refusals(state), state.spool)
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
    _watch(state, running, registry, ended)
    registry.close()
    if not (running.jobs_active or running.endpoints.active()):
        # Otherwise the next server reuses address and keys, which their hosts have.
        state.server_file.unlink(missing_ok=True)
    server.shutdown()
    return 0


def _watch(state: StateFolder, running: Running, registry: Registry, ended: SignalFlag) -> None:
    """Finalize jobs and endpoints and start the registry on request, until no process needs the server.

    That is when no job runs, the server is not announced and no client holds the clients' lock. The endpoints then end.
    Returns with that lock held: a new client then waits for the exit of this server and starts another.
    """
    while not ended.wait(_TICK):
        running.reap()
        registry.start_if_requested()
        if not running.jobs_active and not state.is_announced and _is_last(state):
            running.endpoints.end_all(_ENDPOINT_GRACE)
            return


def _is_last(state: StateFolder) -> bool:
    clients = Lock(state.clients_lock)
    # `up` announces the server while it holds this lock, so no announcement is missed once this process has the lock.
    if clients.take() and not state.is_announced:
        return True
    clients.release()
    return False


def _prepare_process(state: StateFolder) -> None:
    """Put temporary files into the state folder, and allow as many open files as the system does."""
    for leftover in state.spool.iterdir():
        leftover.unlink()
    tempfile.tempdir = str(state.spool)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _credentials(previous: Any) -> Credentials:
    """The credentials of a killed server, which its running jobs still use; otherwise new ones."""
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
