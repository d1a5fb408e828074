"""The variables by which people and the local cloud steer the entrypoint itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from smdp_entrypoint.errors import ContractError

# The port of rank 0's store in the AWS toolkit.
DEFAULT_MASTER_PORT = 7777
# The platform sends SIGKILL this many seconds after SIGTERM.
STOP_BUDGET_S = 120.0


@dataclass(frozen=True)
class Settings:
    """`workers_per_host` None means: as the hyperparameters or the devices say. Seconds for `stop_budget`."""

    workers_per_host: int | None
    master_port: int
    stop_budget: float
    hosts_file: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        workers = environ.get("SMDP_WORKERS_PER_HOST")
        return cls(
            workers_per_host=positive(workers, "SMDP_WORKERS_PER_HOST") if workers else None,
            master_port=_port(environ.get("SMDP_MASTER_PORT")),
            stop_budget=_seconds(environ.get("SMDP_STOP_BUDGET")),
            hosts_file=Path(environ.get("SMDP_HOSTS_FILE") or "/etc/hosts"),
        )


def positive(value: object, name: str) -> int:
    """A whole number from 1 on, given as a number or as text."""
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ContractError(f"{name} must be a whole number from 1 on, found {value!r}.")
    return number


def _port(text: str | None) -> int:
    port = positive(text, "SMDP_MASTER_PORT") if text else DEFAULT_MASTER_PORT
    if port > 65535:
        raise ContractError(f"SMDP_MASTER_PORT must be a port from 1 to 65535, found {text!r}.")
    return port


def _seconds(text: str | None) -> float:
    try:
        seconds = float(text) if text else STOP_BUDGET_S
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ContractError(f"SMDP_STOP_BUDGET must be a number of seconds, found {text!r}.")
    return seconds
