"""Check every request, receive its body, and pass it to the service for which it is signed."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

from smdp_launch.disk import is_full
from smdp_launch.localcloud.errors import ServiceError, as_xml, disk_full
from smdp_launch.localcloud.protocol import bodies, caller, presigned, proof, role_credentials, signatures, wsgi
from smdp_launch.localcloud.protocol.bodies import Body
from smdp_launch.localcloud.protocol.injected_refusals import Refusals
from smdp_launch.localcloud.protocol.protocols import Reply, protocol, speaks_cbor, unknown
from smdp_launch.localcloud.protocol.wsgi import INVOCATION_LIMIT, JSON_BODY_LIMIT, Environ, StartResponse

JsonAction = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Invocation = Callable[[signatures.Head, bytes], Reply]

#: The paths of `sagemaker-runtime`, whose requests are signed for `sagemaker`.
INVOCATIONS = "/endpoints/"


class ObjectService(Interface):
    """The S3 service: takes a verified request with its whole body, and answers as a WSGI application."""

    def __call__(self, environ: Environ, body: Body, start_response: StartResponse) -> Iterable[bytes]: ...


class Gateway:
    """A WSGI application, whose environ has the keys of `wsgi`."""

    def __init__(
        self,
        credentials: signatures.Credentials,
        actions: Mapping[str, Mapping[str, JsonAction]],
        objects: ObjectService,
        invocation: Invocation,
        refusals: Refusals,
        spool: Path,
    ) -> None:
        self.authority = ""  # ADDRESS:PORT, set once the socket is bound
        self._credentials = credentials
        self._actions = actions
        self._objects = objects
        self._invocation = invocation
        self._refusals = refusals
        self._spool = spool

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        head = signatures.Head(environ["REQUEST_METHOD"], environ[wsgi.TARGET], environ[wsgi.HEADERS])
        request = secrets.token_hex(8).upper()
        start = _with_request(start_response, head, request)
        try:
            return self._serve(environ, head, start)
        except ServiceError as error:
            return _refuse(head, error, request, start)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:
            return _refuse(head, self._failure(environ, head, error), request, start)

    def _failure(self, environ: Environ, head: signatures.Head, error: Exception) -> ServiceError:
        """The answer to a request that failed because of an error in the server."""
        if is_full(error):
            return disk_full(self._spool.parent)
        with suppress(OSError):  # writing the log may have failed in the first place
            environ["wsgi.errors"].write(f"{head.method} {head.path}\n{traceback.format_exc()}")
        return ServiceError("InternalFailure", "The local cloud failed; the reason is in its server.log.", 500)

    def _serve(self, environ: Environ, head: signatures.Head, start_response: StartResponse) -> Iterable[bytes]:
        signatures.check_origin(head, self.authority)
        if proof.is_requested(head):
            return _answer(start_response, 200, Reply("text/plain", proof.answer(head, self._credentials)))
        if role_credentials.is_requested(head):
            return _answer(start_response, 200, role_credentials.answer(head, self._credentials, self._refusals))
        form = presigned if presigned.is_presigned(head) else signatures
        claim = form.read_claim(head, self._credentials, datetime.now(timezone.utc))
        self._refusals.check(claim)
        declared = form.declared_hash(head, claim)
        if claim.service == "s3":
            form.verify_signature(head, claim, self._credentials, declared)
            return self._serve_object(environ, head, claim, declared, start_response)
        if claim.service not in self._actions:
            known = ", ".join(sorted((*self._actions, "s3")))
            raise ServiceError("UnknownService", f"The local cloud has {known}, not {claim.service!r}.")
        is_invocation = claim.service == "sagemaker" and head.path.startswith(INVOCATIONS)
        data = _receive(environ, _checked_length(head, is_invocation=is_invocation))
        received = hashlib.sha256(data).hexdigest()
        if declared and not hmac.compare_digest(declared, received):
            raise ServiceError("SignatureDoesNotMatch", "The body is not the one that was signed.", 403)
        signatures.verify_signature(head, claim, self._credentials, received)
        with caller.acting(claim):
            if is_invocation:
                reply = self._invocation(head, data)
                return _answer(start_response, reply.status, reply)
            return self._run_action(claim.service, head, data, start_response)

    def _serve_object(
        self,
        environ: Environ,
        head: signatures.Head,
        claim: signatures.Claim,
        declared: str,
        start_response: StartResponse,
    ) -> Iterable[bytes]:
        if presigned.is_presigned(head):
            presigned.unwrap(environ, head, claim)
        chain = bodies.chain_of(claim, declared, claim.signing_key(self._credentials))
        if head.values("transfer-encoding") or bodies.content_length(head):
            environ[wsgi.CONTINUE]()
        body = bodies.receive(head, environ[wsgi.INPUT], declared, chain, self._spool)
        bodies.describe_whole(environ, body, declared)
        environ[wsgi.HOLDER] = claim.holder
        return self._objects(environ, body, start_response)

    def _run_action(
        self, service: str, head: signatures.Head, data: bytes, start_response: StartResponse
    ) -> Iterable[bytes]:
        form = protocol(service, head)
        name, parameters = form.read(head, data)
        action = self._actions[service].get(name)
        if action is None:
            raise unknown(service, name)
        return _answer(start_response, 200, form.answer(name, action(parameters)))


def _checked_length(head: signatures.Head, *, is_invocation: bool) -> int:
    """The length of a body that is read into memory. Raises ServiceError for one that is too long."""
    length = bodies.content_length(head)
    if is_invocation and length > INVOCATION_LIMIT:
        raise ServiceError("413", f"HTTP content length exceeded {INVOCATION_LIMIT} bytes.", 413)
    if not is_invocation and length > JSON_BODY_LIMIT:
        raise ServiceError("RequestEntityTooLarge", f"A request may have {JSON_BODY_LIMIT} bytes.", 413)
    return length


def _receive(environ: Environ, length: int) -> bytes:
    if length:
        environ[wsgi.CONTINUE]()
    data: bytes = environ["wsgi.input"].read(length)
    if len(data) < length:
        raise ServiceError("IncompleteBody", "The connection ended before the body did.")
    return data


def _answer(start_response: StartResponse, status: int, reply: Reply) -> Iterable[bytes]:
    headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body))), *reply.headers.items()]
    start_response(f"{status} -", headers)
    return [reply.body]


def _with_request(start_response: StartResponse, head: signatures.Head, request: str) -> StartResponse:
    """Add the request's identifier to the answer, in the headers of S3 or in those of the other services."""
    names = ("x-amz-request-id", "x-amz-id-2") if _is_for_objects(head) else ("x-amzn-RequestId",)

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        others = [pair for pair in headers if pair[0].lower() not in ("x-amz-request-id", "x-amzn-requestid")]
        return start_response(status, others + [(name, request) for name in names], *more)

    return start


def _is_for_objects(head: signatures.Head) -> bool:
    """Whether the request is for S3; also guessed where the signature names no service, for the form of the refusal."""
    service = signatures.named_service(head)
    if service or head.path.startswith("/_"):
        return service == "s3"
    return presigned.is_presigned(head) or not (head.values("x-amz-target") or speaks_cbor(head) or _is_form(head))


def _is_form(head: signatures.Head) -> bool:
    return head.method == "POST" and head.path == "/"


def _refuse(head: signatures.Head, error: ServiceError, request: str, start_response: StartResponse) -> Iterable[bytes]:
    if _is_for_objects(head):
        body = b"" if head.method == "HEAD" else as_xml(error, head.path, request)
        return _answer(start_response, error.status, Reply("application/xml", body))
    return _answer(start_response, error.status, protocol(signatures.named_service(head), head).refuse(error))
