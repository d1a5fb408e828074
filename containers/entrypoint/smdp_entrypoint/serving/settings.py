"""The environment variables that configure `serve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from smdp_entrypoint.contract.devices import usable_cores
from smdp_entrypoint.contract.errors import ContractError
from smdp_entrypoint.contract.settings import positive

PORT = 8080
DEFAULT_PROGRAM = "inference.py"
DEFAULT_ACCEPT = "application/json"
# The platform waits 60 s for the answer to a real-time request.
TIMEOUT_S = 60.0
# Requests that wait for a worker. A longer queue only adds requests whose callers have given up.
QUEUE = 1000
# The platform sends SIGKILL 30 s after SIGTERM.
STOP_BUDGET_S = 25.0
_LONGEST_S = 24 * 3600


@dataclass(frozen=True)
class ServeSettings:
    """`workers` is a number of processes, each of which answers one request at a time. `timeout` is in seconds from the
    arrival of a request to its answer, and `stop_budget` in seconds from SIGTERM to the exit. `program` None: use
    DEFAULT_PROGRAM if it exists. `source` None: the code is in `code` below the model. `token`: that requests must
    have; empty for none, as on the platform, whose network only the platform reaches."""

    address: str
    port: int
    workers: int
    queue: int
    timeout: float
    stop_budget: float
    program: str | None
    source: str | None
    accept: str
    token: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], gpus: int = 0) -> ServeSettings:
        """Raises ContractError. Without SAGEMAKER_MODEL_SERVER_WORKERS there is one worker for each of the `gpus` or,
        without GPUs, for each core."""
        port = _number(environ, "SAGEMAKER_BIND_TO_PORT", PORT)
        if port > 65535:
            raise ContractError(f"SAGEMAKER_BIND_TO_PORT must be a port from 1 to 65535, found {port}.")
        return cls(
            address=environ.get("SMDP_SERVE_ADDRESS", ""),
            port=port,
            workers=_number(environ, "SAGEMAKER_MODEL_SERVER_WORKERS", gpus or usable_cores()),
            queue=_number(environ, "SMDP_SERVE_QUEUE", QUEUE),
            timeout=_seconds(environ, "SAGEMAKER_MODEL_SERVER_TIMEOUT", TIMEOUT_S),
            stop_budget=_seconds(environ, "SMDP_STOP_BUDGET", STOP_BUDGET_S),
            program=environ.get("SAGEMAKER_PROGRAM") or None,
            source=environ.get("SAGEMAKER_SUBMIT_DIRECTORY") or None,
            accept=environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT") or DEFAULT_ACCEPT,
            token=environ.get("SMDP_SERVE_TOKEN", ""),
        )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    return positive(text, name) if text else default


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _LONGEST_S:
        raise ContractError(f"{name} must be a number of seconds above 0, up to {_LONGEST_S}, found {text!r}.")
    return number
