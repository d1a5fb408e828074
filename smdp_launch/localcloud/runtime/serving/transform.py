"""`python -m smdp_launch.localcloud.runtime.serving.transform JOBDIR` runs one transform job.

The main thread keeps the hosts running, as the kernel ends hosts whose starting thread has ended. Another thread reads
the objects, sends their records to the hosts and uploads the answers.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdp_launch.localcloud import endpoint_state, processes
from smdp_launch.localcloud.client.bucket import BucketError, Buckets
from smdp_launch.localcloud.endpoint_state import TransformState
from smdp_launch.localcloud.files import read_json, remove_tree
from smdp_launch.localcloud.isolation import namespaces
from smdp_launch.localcloud.layout import TransformFolder
from smdp_launch.localcloud.protocol.requests import split_uri
from smdp_launch.localcloud.runtime import port_lease
from smdp_launch.localcloud.runtime.serving import process
from smdp_launch.localcloud.runtime.serving.fleet import Addresses, Fleet
from smdp_launch.localcloud.runtime.serving.records import RecordError, Split, payloads
from smdp_launch.localcloud.runtime.serving.routing import Answer, Balancer, NoAnswer, NotConnected, post

_TICK = 0.05
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL: nothing waits for the answers to requests in progress
_MIB = 1024 * 1024
_DEFAULT_PAYLOAD = 6  # MiB
_DEFAULT_TIMEOUT = 600  # seconds for an answer
_DEFAULT_RETRIES = 3
_RETRY_DELAY = 1.0  # seconds: a container that was restarted needs some
_MOST_ANSWER = 1024 * _MIB


class _TransformFailed(Exception):
    """The job fails; the message is its FailureReason."""


class _Stopped(Exception):
    """A stop was requested."""


class Transform:
    """The objects of one job, from their download to the upload of the answers."""

    def __init__(self, folder: TransformFolder, request: Mapping[str, Any], fleet: Fleet, buckets: Buckets) -> None:
        self._folder = folder
        self._fleet = fleet
        self._buckets = buckets
        self._input: Mapping[str, Any] = request["TransformInput"]
        self._output: Mapping[str, Any] = request["TransformOutput"]
        self._concurrency = max(1, int(request.get("MaxConcurrentTransforms", 1)))
        self._concurrency *= int(request["TransformResources"]["InstanceCount"])
        client = request.get("ModelClientConfig", {})
        self._timeout = float(client.get("InvocationsTimeoutInSeconds", _DEFAULT_TIMEOUT))
        self._retries = int(client.get("InvocationsMaxRetries", _DEFAULT_RETRIES))
        self._split = Split(
            by=self._input.get("SplitType", "None"),
            join=request.get("BatchStrategy", "MultiRecord") == "MultiRecord",
            most=int(request.get("MaxPayloadInMB", _DEFAULT_PAYLOAD)) * _MIB,
            gzipped=self._input.get("CompressionType", "None") == "Gzip",
        )
        self._balancer = Balancer()
        self._scratch = folder.root / "scratch"

    def run(self) -> None:
        """Raises _TransformFailed and _Stopped."""
        self._scratch.mkdir()
        uri = self._input["DataSource"]["S3DataSource"]["S3Uri"]
        bucket, prefix = split_uri(uri)
        try:
            keys = self._buckets.keys(bucket, prefix)
            if not keys:
                raise _TransformFailed(f"ClientError: No S3 objects found under S3 URL {uri!r}.")
            base = prefix[: prefix.rfind("/") + 1]
            with ThreadPoolExecutor(self._concurrency) as pool:
                for key in keys:
                    self._transform(bucket, key, key.removeprefix(base), pool)
        except BucketError as error:
            raise _TransformFailed(f"ClientError: {error.reason}") from error

    def _transform(self, bucket: str, key: str, name: str, pool: ThreadPoolExecutor) -> None:
        source, target = self._scratch / "input", self._scratch / "output"
        self._buckets.download(bucket, key, source)
        assemble = self._output.get("AssembleWith", "None") == "Line"
        try:
            with target.open("wb") as file:
                for answer in self._answers(source, pool):
                    file.write(answer)
                    if assemble and not answer.endswith(b"\n"):
                        file.write(b"\n")
        except RecordError as error:
            raise _TransformFailed(f"ClientError: {key}: {error}.") from error
        except (NoAnswer, _ModelError) as error:
            raise _TransformFailed(f"ClientError: {key}: {error}") from error
        out_bucket, out_prefix = split_uri(self._output["S3OutputPath"])
        self._buckets.upload(target, out_bucket, f"{out_prefix.rstrip('/')}/{name}.out".lstrip("/"))

    def _answers(self, source: Path, pool: ThreadPoolExecutor) -> Iterator[bytes]:
        """In the order of the records. Twice as many payloads as requests in progress are in memory at most."""
        waiting: list[Any] = []
        for payload in payloads(source, self._split):
            waiting.append(pool.submit(self._ask, payload))
            if len(waiting) >= 2 * self._concurrency:
                yield waiting.pop(0).result()
        for one in waiting:
            yield one.result()

    def _ask(self, payload: bytes) -> bytes:
        failures = 0
        while True:
            self._check_stop()
            try:
                answer = self._post(payload)
                if answer.status < 500 or failures >= self._retries:
                    return _body(answer)
            except (NotConnected, NoAnswer) as error:
                if failures >= self._retries:
                    raise NoAnswer(str(error)) from error
            failures += 1
            time.sleep(_RETRY_DELAY)

    def _post(self, payload: bytes) -> Answer:
        hosts = [host for variant in self._fleet.records() for host in variant["hosts"]]
        if not hosts:
            raise NotConnected("no container is healthy")
        headers = {"Content-Type": self._input.get("ContentType", ""), "Accept": self._output.get("Accept", "")}
        sent = {name: value for name, value in headers.items() if value}
        with self._balancer.host(hosts) as host:
            return post(host, payload, sent, self._timeout, _MOST_ANSWER, chunked=not self._split.most)

    def _check_stop(self) -> None:
        if self._folder.stop.exists():
            raise _Stopped


class _ModelError(Exception):
    """A container answered with an error."""


def _body(answer: Answer) -> bytes:
    if 200 <= answer.status < 300:
        return answer.body
    kind = "client" if answer.status < 500 else "server"
    text = answer.body.decode("utf-8", "replace")
    raise _ModelError(f'Received {kind} error ({answer.status}) from primary with message "{text}". See job logs.')


class Supervisor:
    def __init__(self, folder: TransformFolder, state: TransformState) -> None:
        self._folder = folder
        self._state = state
        self._request: Mapping[str, Any] = read_json(folder.request)
        self._failure: str | None = None
        self._outcome = ""

    def run(self) -> None:
        """Run the job. In every case it gets an end state, and nothing of its hosts is left behind."""
        deployment = endpoint_state.read_deployment(self._folder.deployment)
        if deployment is None:
            return
        buckets = Buckets(self._folder.state_folder, self._folder.principal(""))  # keeps the server running
        addresses = port_lease.take(self._folder.principal(""))
        isolated = namespaces.refusal() is None
        fleet = Fleet(self._folder, deployment, Addresses(addresses), buckets.endpoint, isolated=isolated)
        try:
            self._state.started = time.time()
            endpoint_state.write(self._folder.state, self._state)
            self._supervise(fleet, buckets)
        except Exception:
            with suppress(OSError):
                traceback.print_exc()
            self._end_with("Failed", f"InternalServerError: the local cloud failed; see {self._folder.supervisor_log}")
        finally:
            self._clean_up(fleet)
            addresses.release()
            buckets.close()
            self._state.end(self._outcome or "Failed", self._failure, time.time())
            endpoint_state.write(self._folder.state, self._state)

    def _supervise(self, fleet: Fleet, buckets: Buckets) -> None:
        work: threading.Thread | None = None
        while not self._outcome:
            fleet.maintain()
            if self._folder.stop.exists():
                self._end_with("Stopped", None)  # requests in progress end with their hosts
            elif fleet.failure:
                reason = fleet.container_failure
                self._end_with("Failed", f"AlgorithmError: {reason}" if reason else f"ClientError: {fleet.failure}")
            elif work is None and fleet.is_in_service:
                transform = Transform(self._folder, self._request, fleet, buckets)
                work = threading.Thread(target=self._work, args=(transform,), daemon=True)
                work.start()
            time.sleep(_TICK)

    def _work(self, transform: Transform) -> None:
        try:
            transform.run()
            self._end_with("Completed", None)
        except _Stopped:
            self._end_with("Stopped", None)
        except _TransformFailed as error:
            self._end_with("Failed", str(error))
        except Exception as error:  # reported as the job's failure, since no other thread sees it
            with suppress(OSError):
                traceback.print_exc()
            self._end_with("Failed", f"InternalServerError: {error}")

    def _end_with(self, outcome: str, failure: str | None) -> None:
        """The first outcome counts."""
        if not self._outcome:
            self._failure = failure
            self._outcome = outcome

    def _clean_up(self, fleet: Fleet) -> None:
        while True:
            fleet.terminate(float((read_json(self._folder.stop) or {}).get("grace", _GRACE)))
            if fleet.stopped():
                break
            time.sleep(_TICK)
        for tree in (self._folder.hosts, self._folder.models, self._folder.root / "scratch"):
            remove_tree(tree)


def main() -> int:
    return process.run(
        TransformFolder,
        endpoint_state.read_transform,
        lambda folder, state: Supervisor(folder, state).run(),
        lambda state, reason: state.end("Failed", reason, time.time()),
    )


if __name__ == "__main__":
    processes.exit_fast(main())
