"""The environment variables that configure the entrypoint itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from smdp_entrypoint.contract.errors import ContractError

_MOST = 1_000_000
_LONGEST_SHOWN = 200  # characters
# The port of rank 0's store in the AWS toolkit.
DEFAULT_MASTER_PORT = 7777
# The port on which the first host receives failure reports.
DEFAULT_CONTROL_PORT = 7778
# The platform sends SIGKILL 120 s after SIGTERM. A shorter time leaves room to write the failure file.
STOP_BUDGET_S = 115.0
# The interval of the measurements that the workers and the entrypoint report as events.
TIMING_INTERVAL_S = 5.0
# All rounds of the network probe together take no longer.
NETWORK_PROBE_S = 3.0
# How long the network probe waits for hosts that are not ready; the workers do not wait for it.
NETWORK_WAIT_S = 60.0
# A rank hangs if it makes no progress for this time and for this many times its usual step.
HANG_AFTER_S = 60.0
HANG_FACTOR = 10.0
_HANG_ACTIONS = ("report", "end", "ignore")
# How long the first host's name may take to resolve to an address.
HOSTS_TIMEOUT_S = 15 * 60.0


@dataclass(frozen=True)
class ControlSettings:
    """What the control channel needs. An invalid value of any other variable is reported over the channel.
    `hosts_timeout` is in seconds."""

    port: int
    hosts_timeout: float
    hosts_file: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ControlSettings:
        return cls(
            port=_port(environ, "SMDP_CONTROL_PORT", DEFAULT_CONTROL_PORT),
            hosts_timeout=_seconds(environ, "SMDP_HOSTS_TIMEOUT", HOSTS_TIMEOUT_S),
            hosts_file=Path(environ.get("SMDP_HOSTS_FILE") or "/etc/hosts"),
        )


@dataclass(frozen=True)
class NetworkSettings:
    """The probe of the network. `limit` and `wait` are in seconds; `limit` 0: no probe. `gbit` is the rate of a host
    where it is not that of its instance type, 0 if it is not known. `require` is a share of this rate, from 0 to 1.
    `interface` is the name or address of the only interface to probe; empty for all. `only`: probe and exit."""

    limit: float
    wait: float
    gbit: float | None
    require: float | None
    interface: str
    only: bool
    hosts_file: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> NetworkSettings:
        gbit, require = environ.get("SMDP_NETWORK_GBIT"), environ.get("SMDP_NETWORK_REQUIRE")
        return cls(
            limit=_number(environ, "SMDP_NETWORK_PROBE_S", NETWORK_PROBE_S, "seconds"),
            wait=_number(environ, "SMDP_NETWORK_WAIT_S", NETWORK_WAIT_S, "seconds"),
            gbit=_number(environ, "SMDP_NETWORK_GBIT", 0.0, "Gbit/s") if gbit else None,
            require=_share(require) if require else None,
            interface=environ.get("SMDP_INTERFACE", ""),
            only=environ.get("SMDP_NETWORK_ONLY") == "1",
            hosts_file=Path(environ.get("SMDP_HOSTS_FILE") or "/etc/hosts"),
        )


@dataclass(frozen=True)
class HangSettings:
    """`after`: a rank hangs if it makes no progress for so many seconds and for `factor` times its usual step.
    `action`: "report" a hang, "end" the job with it, or "ignore" hangs."""

    action: str
    after: float
    factor: float


@dataclass(frozen=True)
class Settings:
    """`workers_per_host` None: use the hyperparameters or the number of devices. `require_gpu`: fail on a host whose
    instance type has GPUs and that shows none. `checks_health`: end the job on a host that is broken. `stop_budget`
    and `timing_interval` are in seconds; `timing_interval` 0: measure nothing; None: the value is invalid, which never
    ends a job."""

    workers_per_host: int | None
    master_port: int
    stop_budget: float
    require_gpu: bool
    checks_health: bool
    timing_interval: float | None
    network: NetworkSettings
    hang: HangSettings

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        workers = environ.get("SMDP_WORKERS_PER_HOST")
        return cls(
            workers_per_host=positive(workers, "SMDP_WORKERS_PER_HOST") if workers else None,
            master_port=_port(environ, "SMDP_MASTER_PORT", DEFAULT_MASTER_PORT),
            stop_budget=_seconds(environ, "SMDP_STOP_BUDGET", STOP_BUDGET_S),
            require_gpu=environ.get("SMDP_REQUIRE_GPU") != "0",
            # Hosts of the local cloud are this machine, which the launcher itself checks.
            checks_health="0" not in (environ.get("SMDP_HEALTH_CHECK"), environ.get("SMDP_REQUIRE_GPU")),
            timing_interval=_timing_interval(environ),
            network=NetworkSettings.from_environment(environ),
            hang=_hang_settings(environ),
        )


def _hang_settings(environ: Mapping[str, str]) -> HangSettings:
    action = environ.get("SMDP_HANG") or _HANG_ACTIONS[0]
    if action not in _HANG_ACTIONS:
        raise ContractError(f"SMDP_HANG must be one of {', '.join(_HANG_ACTIONS)}, found {short_repr(action)}.")
    after = _seconds(environ, "SMDP_HANG_AFTER_S", HANG_AFTER_S)
    return HangSettings(action, after, _number(environ, "SMDP_HANG_FACTOR", HANG_FACTOR, "times"))


def positive(value: object, name: str) -> int:
    """A whole number from 1 to a million, as a number or as text. Raises ContractError."""
    try:
        number = int(str(value))
    except ValueError:
        number = 0
    if not 1 <= number <= _MOST or isinstance(value, bool):
        raise ContractError(f"{name} must be a whole number from 1 to {_MOST}, found {short_repr(value)}.")
    return number


def short_repr(value: object) -> str:
    """The repr of an untrusted value, shortened to one line of the failure file."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out a number of thousands of digits
        return f"a {type(value).__name__} that is too long to show"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    port = positive(text, name) if text else default
    if port > 65535:
        raise ContractError(f"{name} must be a port from 1 to 65535, found {text!r}.")
    return port


def _timing_interval(environ: Mapping[str, str]) -> float | None:
    try:
        return _seconds(environ, "SMDP_TIMING_S", TIMING_INTERVAL_S)
    except ContractError:
        return None


def _share(text: str) -> float:
    percent = positive(text.strip().rstrip("%").rstrip(), "SMDP_NETWORK_REQUIRE")
    if percent > 100:
        raise ContractError(f"SMDP_NETWORK_REQUIRE must be from 1% to 100%, found {text!r}.")
    return percent / 100


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    return _number(environ, name, default, "seconds")


def _number(environ: Mapping[str, str], name: str, default: float, unit: str) -> float:
    text = environ.get(name)
    try:
        number = float(text) if text else default
    except ValueError:
        number = -1.0
    if not (math.isfinite(number) and number >= 0):
        raise ContractError(f"{name} must be a number of {unit}, found {text!r}.")
    return number
