"""The health check of one container: `GET /ping`, again and again, in a thread of its own."""

from __future__ import annotations

import http.client
import threading
import time

_TIMEOUT = 2.0  # seconds for an answer, as on the platform
_STARTING_INTERVAL = 0.1  # seconds between checks until the first one passes
_INTERVAL = 2.0  # seconds between later checks
MOST_FAILURES = 3  # in a row, until the container counts as unhealthy


class HealthCheck:
    """Checks from `begin` to `end`. Any thread may read the properties."""

    def __init__(self, address: str, port: int, delay: float = 0.0) -> None:
        """`delay`: seconds in which the checks fail whatever the container answers: an injected slow start."""
        self._address = address
        self._port = port
        self._not_before = time.monotonic() + delay
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._has_passed = False
        self._failures = 0
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def passes(self) -> bool:
        """Whether a check has passed, and fewer than `MOST_FAILURES` have failed since the last one that passed."""
        with self._lock:
            return self._has_passed and self._failures < MOST_FAILURES

    @property
    def has_failed(self) -> bool:
        """Whether the container has passed a check, and then failed too many."""
        with self._lock:
            return self._has_passed and self._failures >= MOST_FAILURES

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            passed = time.monotonic() >= self._not_before and ping(self._address, self._port, _TIMEOUT)
            with self._lock:
                self._has_passed = self._has_passed or passed
                self._failures = 0 if passed else self._failures + 1
                interval = _INTERVAL if self._has_passed else _STARTING_INTERVAL
            self._ended.wait(interval)


def ping(address: str, port: int, timeout: float) -> bool:
    """Whether the container answers 200 within `timeout` seconds."""
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    deadline = time.monotonic() + timeout
    try:
        connection.request("GET", "/ping", headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status == http.client.OK and time.monotonic() <= deadline
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
