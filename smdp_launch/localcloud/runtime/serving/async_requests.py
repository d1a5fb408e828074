"""The requests of InvokeEndpointAsync: the server writes a file for each, the endpoint's supervisor answers them.

A request waits in its file until a host takes it, so it survives the end of the server. Its answer or its error becomes
an object in S3; then the file is removed. Where the object cannot be stored for now, as on a full disk, the request is
kept until it expires.
"""

from __future__ import annotations

import base64
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from smdp_launch.disk import why
from smdp_launch.localcloud.client.bucket import BucketError, Buckets
from smdp_launch.localcloud.client.connect import LocalCloudError
from smdp_launch.localcloud.files import read_json
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.protocol.requests import split_uri
from smdp_launch.localcloud.runtime.serving.routing import Answer, Balancer, NoAnswer, NotConnected, post

_MOST_THREADS = 64
_DEFAULT_CONCURRENCY = 4  # requests of one host at once
_RETRY_DELAY = 0.5  # seconds, while no host is healthy or no answer can be stored
_MOST_ANSWER = 1024**3

Result = TypeVar("Result")
Variants = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Outcome:
    """The object to write, and its address; the address is empty where the endpoint has none for errors."""

    body: bytes
    place: str
    content_type: str = "text/plain"


class AsyncRequests:
    """`step` is called by the supervisor's main thread; the answers come in threads of their own."""

    def __init__(self, folder: EndpointFolder) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(_MOST_THREADS)
        self._balancer = Balancer()
        self._in_progress: dict[Path, Future[None]] = {}
        self._variants: Variants = ()
        self._is_ended = False

    def step(self, variants: Variants, config: Mapping[str, Any] | None) -> None:
        """Begin requests that wait, as far as the hosts may have more.

        Args:
            variants: as in the endpoint's state.
            config: AsyncInferenceConfig of the endpoint; None for an endpoint without it.
        """
        self._variants = variants
        if config is None:
            return
        self._in_progress = {path: one for path, one in self._in_progress.items() if not one.done()}
        each = config.get("ClientConfig", {}).get("MaxConcurrentInvocationsPerInstance", _DEFAULT_CONCURRENCY)
        most = min(_MOST_THREADS, each * sum(len(one["hosts"]) for one in variants))
        for path in sorted(self._folder.requests.glob("*.json")):
            if len(self._in_progress) >= most:
                return
            if path not in self._in_progress:
                self._in_progress[path] = self._pool.submit(self._serve, path)

    def end(self) -> None:
        """Begin no more requests; those in progress end with the hosts."""
        self._is_ended = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _serve(self, path: Path) -> None:
        request = read_json(path)
        if not request:
            return
        try:
            self._answer(request)
        except Exception:
            _log_exception()
        if not self._is_ended:
            path.unlink(missing_ok=True)

    def _answer(self, request: Mapping[str, Any]) -> None:
        principal = self._folder.principal(request["variant"])
        buckets = self._retried(request, lambda: Buckets(self._folder.state_folder, principal))
        scratch = self._folder.requests / f"{request['id']}.data"
        try:
            outcome = self._retried(request, lambda: self._outcome(request, buckets, scratch))
            self._retried(request, lambda: _store(outcome, buckets, scratch))
        except (BucketError, OSError) as error:
            if self._is_ended:
                return
            reason = error.reason if isinstance(error, BucketError) else why(error, scratch)
            _store(_Outcome(f"The answer cannot be stored: {reason}".encode(), request["failure"]), buckets, scratch)
        finally:
            scratch.unlink(missing_ok=True)
            buckets.close()

    def _retried(self, request: Mapping[str, Any], action: Callable[[], Result]) -> Result:
        """The result of `action`. Retries while it fails for a reason that may pass, until the request expires."""
        is_first = True
        while True:
            try:
                return action()
            except (BucketError, LocalCloudError, OSError) as error:
                if self._is_ended or time.time() >= request["expires"] or not _may_pass(error):
                    raise
                if is_first:
                    _log_exception()
            is_first = False
            time.sleep(_RETRY_DELAY)

    def _outcome(self, request: Mapping[str, Any], buckets: Buckets, scratch: Path) -> _Outcome:
        try:
            body, headers = _input(request, buckets, scratch)
            answer = self._post(request, body, headers)
        except BucketError as error:
            return _Outcome(f"The input cannot be read: {error.reason}".encode(), request["failure"])
        except NoAnswer as error:
            return _Outcome(str(error).encode(), request["failure"])
        if 200 <= answer.status < 300:
            return _Outcome(answer.body, request["output"], answer.headers.get("content-type", ""))
        kind = "client" if answer.status < 500 else "server"
        text = answer.body.decode("utf-8", "replace")
        message = f'Received {kind} error ({answer.status}) from primary with message "{text}".'
        return _Outcome(message.encode(), request["failure"])

    def _post(self, request: Mapping[str, Any], body: bytes, headers: Mapping[str, str]) -> Answer:
        """Raises NoAnswer, also where no host was healthy until the request expired."""
        while not self._is_ended and time.time() < request["expires"]:
            hosts = [host for one in self._variants if one["name"] == request["variant"] for host in one["hosts"]]
            if hosts:
                with suppress(NotConnected), self._balancer.host(hosts) as host:
                    return post(host, body, headers, request["timeout"], _MOST_ANSWER)
            time.sleep(_RETRY_DELAY)
        raise NoAnswer("The request expired before a container could take it (RequestTTLSeconds).")


def _store(outcome: _Outcome, buckets: Buckets, scratch: Path) -> None:
    if not outcome.place:
        return
    bucket, key = split_uri(outcome.place)
    try:
        scratch.write_bytes(outcome.body)
        buckets.upload(scratch, bucket, key, outcome.content_type)
    finally:
        scratch.unlink(missing_ok=True)  # on a full disk the next try needs its space


def _may_pass(error: Exception) -> bool:
    """Whether a later try may succeed: the disk is full, or the server fails or does not answer."""
    return not isinstance(error, BucketError) or not error.code or error.status >= 500


def _log_exception() -> None:
    """Write the exception being handled to the supervisor's log, unless the disk is what failed."""
    with suppress(OSError):
        traceback.print_exc()


def _input(request: Mapping[str, Any], buckets: Buckets, scratch: Path) -> tuple[bytes, dict[str, str]]:
    """The body and the headers for the container. An input in S3 has its own content type, if the request has none."""
    headers: dict[str, str] = dict(request["headers"])
    if not request["input"]:
        return base64.b64decode(request["body"]), headers
    bucket, key = split_uri(request["input"])
    buckets.download(bucket, key, scratch)
    kind = buckets.content_type(bucket, key)
    if kind:
        headers.setdefault("Content-Type", kind)
    return scratch.read_bytes(), headers
