"""Inject the fault of a variant's model into its hosts, and report it in their logs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from smdp_launch.catalog.hosting.faults import VARIABLE, EndpointFault
from smdp_launch.localcloud.runtime.serving.model_data import DeploymentFailed, container_of
from smdp_launch.localcloud.runtime.serving.serving_host import ServingHost


def requested_fault(variant: Mapping[str, Any]) -> EndpointFault | None:
    """Raises DeploymentFailed where the model's environment has an invalid one."""
    text = container_of(variant).get("Environment", {}).get(VARIABLE)
    if text is None:
        return None
    try:
        return EndpointFault.parse(text)
    except ValueError as error:
        raise DeploymentFailed(f"ClientError: {VARIABLE}: {error}") from error


class EndpointFaultInjector:
    """Injects the fault of one variant once."""

    def __init__(self, fault: EndpointFault | None) -> None:
        self._fault = fault
        self._since: float | None = None  # of the monotonic clock: when all hosts were in service first
        self._injected = False
        self.refuses_until = 0.0  # seconds since 1970

    @property
    def slow_start(self) -> float:
        """Seconds after its start in which a container's health check fails."""
        return self._fault.seconds if self._fault is not None and self._fault.kind == "slow-start" else 0.0

    def inject(self, hosts: Sequence[ServingHost]) -> None:
        """Called again and again; injects a fault that is due."""
        if self._fault is None or self._injected or self._fault.kind == "slow-start":
            return
        if self._since is None and all(host.is_in_service for host in hosts):
            self._since = time.monotonic()
        if self._since is None or time.monotonic() < self._since + self._fault.after:
            return
        self._injected = True
        if self._fault.kind == "crash":
            hosts[0].report("fault injected: the container is killed")
            hosts[0].crash()
        else:
            hosts[0].report(f"fault injected: requests are refused for {self._fault.seconds:g} s")
            self.refuses_until = time.time() + self._fault.seconds
