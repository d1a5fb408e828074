"""The hosts of one deployment of an endpoint: prepared in a thread of their own, then started and maintained together.

An update has two fleets: the new one starts beside the old one, and replaces it once all its hosts are in service.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.localcloud.endpoint_state import Deployment
from smdp_launch.localcloud.files import remove_tree
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.runtime.port_lease import Lease
from smdp_launch.localcloud.runtime.serving import model_data
from smdp_launch.localcloud.runtime.serving.endpoint_faults import EndpointFaultInjector, requested_fault
from smdp_launch.localcloud.runtime.serving.model_data import DeploymentFailed
from smdp_launch.localcloud.runtime.serving.serving_host import Address, Limits, ServingHost, free_port
from smdp_launch.localcloud.runtime.serving.serving_launch import ServingLaunch, invocation_limit, startup_limit

_DOWNLOAD_LIMIT = 3600.0  # seconds, the longest ModelDataDownloadTimeoutInSeconds
_MOST_ADDRESSES = 254
_MIB = 1024 * 1024


class Addresses:
    """The addresses of an endpoint's network, of which both fleets of an update take some."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._used: set[int] = set()

    def take(self) -> Address:
        number = next(one for one in range(1, _MOST_ADDRESSES + 1) if one not in self._used)
        self._used.add(number)
        host = self._lease.address(number)
        return Address(number, host, free_port(host), secrets.token_hex(16))

    def give_back(self, address: Address) -> None:
        self._used.discard(address.number)


class Fleet:
    """`failure` is the FailureReason of a deployment that cannot be in service, else empty.

    The supervisor's main thread calls all methods.
    """

    def __init__(
        self,
        folder: EndpointFolder,
        deployment: Deployment,
        addresses: Addresses,
        endpoint: Endpoint,
        *,
        isolated: bool,
    ) -> None:
        self.deployment = deployment
        self.failure = ""
        self.container_failure = ""  # the part of `failure` about the container
        self._folder = folder
        self._addresses = addresses
        self._endpoint = endpoint
        self._isolated = isolated
        self._hosts: dict[str, list[ServingHost]] = {one["VariantName"]: [] for one in deployment.variants}
        self._injectors = {one["VariantName"]: EndpointFaultInjector(None) for one in deployment.variants}
        self._since = time.time()
        self._is_abandoned = threading.Event()
        self._are_models_ready = threading.Event()
        self._download_failure = ""
        self._thread = threading.Thread(target=self._fetch_models, daemon=True)
        self._thread.start()

    @property
    def hosts(self) -> list[ServingHost]:
        return [host for hosts in self._hosts.values() for host in hosts]

    @property
    def is_in_service(self) -> bool:
        """Whether every host has passed its health check."""
        return bool(self.hosts) and all(host.is_in_service for host in self.hosts)

    def maintain(self) -> None:
        """Start what is missing and restart what has failed; sets `failure`."""
        if not self.hosts:
            if self._download_failure:
                self.failure = self._download_failure
            elif self._are_models_ready.is_set():
                self._create_hosts()
        for name, hosts in self._hosts.items():
            for host in hosts:
                host.maintain()
                if host.failure and not self.failure:
                    self.container_failure = host.failure
                    self.failure = (
                        f"The primary container for production variant {name} did not pass the ping health check. "
                        f"Please check CloudWatch logs for this endpoint. {host.failure}"
                    )
            if hosts:
                self._injectors[name].inject(hosts)

    def records(self) -> list[dict[str, Any]]:
        """The variants for the endpoint's state, each with the hosts that answer requests."""
        return [
            {
                "name": one["VariantName"],
                "model": one["ModelName"],
                "image": model_data.container_of(one).get("Image", ""),
                "weight": float(one.get("InitialVariantWeight", 1.0)),
                "desired": len(self._hosts[one["VariantName"]]),
                "timeout": invocation_limit(one),
                "serverless": one.get("ServerlessConfig"),
                "since": self._since,
                "refuses_until": self._injectors[one["VariantName"]].refuses_until,
                "hosts": [host.record() for host in self._hosts[one["VariantName"]] if host.is_in_service],
            }
            for one in self.deployment.variants
        ]

    def terminate(self, grace: float) -> None:
        """Send SIGTERM to every container, and SIGKILL after `grace` seconds; a later call may set fewer.

        `stopped` must be called until it returns True.
        """
        self._is_abandoned.set()
        for host in self.hosts:
            host.terminate(grace)

    def stopped(self) -> bool:
        stopped = [host.stopped() for host in self.hosts]  # of every host, since it also kills
        if not all(stopped):
            return False
        self._clean_up()
        return True

    def kill(self) -> None:
        self._is_abandoned.set()
        for host in self.hosts:
            host.kill()
        self._clean_up()

    def _clean_up(self) -> None:
        for host in self.hosts:
            self._addresses.give_back(host.address)
            remove_tree(self._folder.hosts / host.instance)
        for one in self.deployment.variants:
            remove_tree(self._model(one))

    def _create_hosts(self) -> None:
        total = sum(model_data.hosts_of(one) for one in self.deployment.variants)
        try:
            for one in self.deployment.variants:
                launch = ServingLaunch(self._folder, one, total, self._endpoint, isolated=self._isolated)
                name = one["VariantName"]
                self._injectors[name] = EndpointFaultInjector(requested_fault(one))
                memory = one.get("ServerlessConfig", {}).get("MemorySizeInMB", 0) * _MIB
                for _ in range(model_data.hosts_of(one)):
                    host = ServingHost(
                        self._folder.hosts,
                        self._folder.logs / name,
                        self._model(one),
                        self._addresses.take(),
                        Limits(startup_limit(one), self._injectors[name].slow_start, memory),
                        launch.spec,
                    )
                    self._hosts[name].append(host)
        except DeploymentFailed as error:
            self.failure = str(error)
        except OSError as error:
            self.failure = f"InternalServerError: this machine cannot run the endpoint: {error}"

    def _fetch_models(self) -> None:
        try:
            for one in self.deployment.variants:
                limit = float(one.get("ModelDataDownloadTimeoutInSeconds", _DOWNLOAD_LIMIT))
                model_data.fetch(self._folder, one, self._model(one), _Deadline(limit, self._is_abandoned).check)
        except _Abandoned:
            return
        except DeploymentFailed as error:
            self._download_failure = str(error)
        except Exception as error:  # reported as the endpoint's failure, since no other thread sees it
            self._download_failure = f"InternalServerError: the model cannot be stored: {error}"
        finally:
            if self._is_abandoned.is_set():
                for one in self.deployment.variants:
                    remove_tree(self._model(one))
        self._are_models_ready.set()

    def _model(self, variant: Mapping[str, Any]) -> Path:
        return self._folder.models / f"{self.deployment.generation}-{variant['VariantName']}"


class _Abandoned(Exception):
    """The fleet is not needed any more."""


class _Deadline:
    def __init__(self, limit: float, is_abandoned: threading.Event) -> None:
        self._limit = limit
        self._end = time.monotonic() + limit
        self._is_abandoned = is_abandoned

    def check(self) -> None:
        if self._is_abandoned.is_set():
            raise _Abandoned
        if time.monotonic() > self._end:
            raise DeploymentFailed(
                f"The model data was not downloaded and extracted within {self._limit:g} s "
                "(ModelDataDownloadTimeoutInSeconds)."
            )
