"""The one door: every request is checked, its body received, and then handed to the service it is signed for."""

from __future__ import annotations

import hashlib
import hmac
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any
from typing import Protocol as Interface

from smdp_launch.disk import is_full
from smdp_launch.localcloud import auth, caller, proof, role
from smdp_launch.localcloud.errors import ServiceError, as_xml, disk_full
from smdp_launch.localcloud.protocols import Reply, protocol, unknown
from smdp_launch.localcloud.refusals import Refusals

JSON_BODY_LIMIT = 4 * 1024 * 1024
_BLOCK = 1024 * 1024

StartResponse = Callable[..., Any]
Environ = dict[str, Any]
JsonAction = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ObjectService(Interface):
    """The S3 side: gets a verified request and its whole body, and answers as a WSGI application."""

    def __call__(self, environ: Environ, body: IO[bytes], start_response: StartResponse) -> Iterable[bytes]: ...


class Gateway:
    """A WSGI application. `HEADERS`, `TARGET` and `CONTINUE` in the environ come from our request handler."""

    HEADERS = "smdp.headers"
    TARGET = "smdp.target"
    CONTINUE = "smdp.continue"

    def __init__(
        self,
        credentials: auth.Credentials,
        actions: Mapping[str, Mapping[str, JsonAction]],
        objects: ObjectService,
        refusals: Refusals,
        spool: Path,
    ) -> None:
        self.authority = ""  # ADDRESS:PORT, known once the socket is bound
        self._credentials = credentials
        self._actions = actions
        self._objects = objects
        self._refusals = refusals
        self._spool = spool

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        head = auth.Head(environ["REQUEST_METHOD"], environ[self.TARGET], environ[self.HEADERS])
        try:
            return self._serve(environ, head, start_response)
        except ServiceError as error:
            return _refuse(head, error, start_response)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            return _refuse(head, self._failure(environ, head, error), start_response)

    def _failure(self, environ: Environ, head: auth.Head, error: Exception) -> ServiceError:
        """The answer to a request that failed through no fault of its own."""
        if is_full(error):
            return disk_full(self._spool.parent)
        with suppress(OSError):  # the log may be what cannot be written
            environ["wsgi.errors"].write(f"{head.method} {head.path}\n{traceback.format_exc()}")
        return ServiceError("InternalFailure", "The local cloud failed; the reason is in its server.log.", 500)

    def _serve(self, environ: Environ, head: auth.Head, start_response: StartResponse) -> Iterable[bytes]:
        auth.check_origin(head, self.authority)
        if proof.is_asked_for(head):
            return _answer(start_response, 200, Reply("text/plain", proof.answer(head, self._credentials)))
        if role.is_asked_for(head):
            return _answer(start_response, 200, role.answer(head, self._credentials, self._refusals))
        claim = auth.read_claim(head, self._credentials, datetime.now(timezone.utc))
        self._refusals.check(claim)
        declared = auth.declared_hash(head, claim)
        length = _content_length(head)
        if claim.service == "s3":
            auth.verify_signature(head, claim, self._credentials, declared)
            body = self._receive_object(environ, length, declared)
            return self._objects(environ, body, start_response)
        if claim.service not in self._actions:
            known = ", ".join(sorted((*self._actions, "s3")))
            raise ServiceError("UnknownService", f"The local cloud has {known}, not {claim.service!r}.")
        if length > JSON_BODY_LIMIT:
            raise ServiceError("RequestEntityTooLarge", f"A request may have {JSON_BODY_LIMIT} bytes.", 413)
        data = _receive(environ, length)
        received = hashlib.sha256(data).hexdigest()
        if declared and not hmac.compare_digest(declared, received):
            raise ServiceError("SignatureDoesNotMatch", "The body is not the one that was signed.", 403)
        auth.verify_signature(head, claim, self._credentials, received)
        with caller.acting(claim):
            return self._run_action(claim.service, head, data, start_response)

    def _receive_object(self, environ: Environ, length: int, declared: str) -> IO[bytes]:
        """The body on disk, its hash verified; deleted when it is closed or this process ends."""
        body = tempfile.TemporaryFile(dir=self._spool)  # noqa: SIM115 (the reader closes it)
        checksum = hashlib.sha256()
        remaining = length
        if length:
            environ[self.CONTINUE]()
        while remaining:
            block = environ["wsgi.input"].read(min(remaining, _BLOCK))
            if not block:
                raise ServiceError("IncompleteBody", "The connection ended before the body did.")
            remaining -= len(block)
            checksum.update(block)
            body.write(block)
        if declared not in (auth.UNSIGNED_PAYLOAD, checksum.hexdigest()):
            raise ServiceError("XAmzContentSHA256Mismatch", "The body is not the one that was signed.")
        body.seek(0)
        return body

    def _run_action(self, service: str, head: auth.Head, data: bytes, start_response: StartResponse) -> Iterable[bytes]:
        spoken = protocol(service, head)
        name, parameters = spoken.read(head, data)
        action = self._actions[service].get(name)
        if action is None:
            raise unknown(service, name)
        return _answer(start_response, 200, spoken.answer(name, action(parameters)))


def _content_length(head: auth.Head) -> int:
    if head.values("transfer-encoding"):
        raise ServiceError("MissingContentLength", "Bodies must have a Content-Length.", 411)
    values = head.values("content-length")
    if not values:
        return 0
    # Nothing of twenty digits fits this disk, and Python reads no numbers of thousands.
    text = values[0].strip()
    if len(values) > 1 or len(text) > 19 or not text.isdecimal() or not text.isascii():
        raise ServiceError("InvalidRequest", "The Content-Length is not a number.")
    return int(text)


def _receive(environ: Environ, length: int) -> bytes:
    if length:
        environ[Gateway.CONTINUE]()
    data: bytes = environ["wsgi.input"].read(length)
    if len(data) < length:
        raise ServiceError("IncompleteBody", "The connection ended before the body did.")
    return data


def _answer(start_response: StartResponse, status: int, reply: Reply) -> Iterable[bytes]:
    headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body))), *reply.headers.items()]
    start_response(f"{status} -", headers)
    return [reply.body]


def _refuse(head: auth.Head, error: ServiceError, start_response: StartResponse) -> Iterable[bytes]:
    service = auth.service_hint(head)
    if service == "s3":
        body = b"" if head.method == "HEAD" else as_xml(error, head.path)
        return _answer(start_response, error.status, Reply("application/xml", body))
    return _answer(start_response, error.status, protocol(service, head).refuse(error))
