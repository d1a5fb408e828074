"""The specs of an endpoint's hosts: command, environment and view of the file system."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.localcloud.environment import host_environment
from smdp_launch.localcloud.isolation import host_python
from smdp_launch.localcloud.isolation.host_python import HostPython
from smdp_launch.localcloud.isolation.namespaces import View
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.protocol.signatures import Credentials, Holder, job_hash
from smdp_launch.localcloud.runtime.host_process import HostSpec
from smdp_launch.localcloud.runtime.host_specs import LONGEST_TMP, visible_paths
from smdp_launch.localcloud.runtime.serving.model_data import container_of
from smdp_launch.localcloud.runtime.serving.serving_host import PORT, Address
from smdp_launch.localcloud.runtime.tree import HostTree

#: In a model's Environment: shorter limits than the platform's, in seconds, for tests of a script.
STARTUP_VARIABLE = "SMDP_LOCAL_STARTUP_TIMEOUT_S"
TIMEOUT_VARIABLE = "SMDP_LOCAL_INVOCATION_TIMEOUT_S"
INVOCATION_LIMIT = 60.0  # seconds for the answer to a real-time request, as on the platform


class ServingLaunch:
    """How the hosts of one variant are started.

    Args:
        variant: as in `Deployment`.
        hosts: number of hosts of the whole endpoint, which share this machine's processors.
        isolated: whether hosts have namespaces.
    """

    def __init__(
        self, folder: EndpointFolder, variant: Mapping[str, Any], hosts: int, endpoint: Endpoint, *, isolated: bool
    ) -> None:
        self._folder = folder
        self._variant = variant
        self._hosts = hosts
        self._endpoint = endpoint
        self._isolated = isolated

    def spec(self, tree: HostTree, address: Address) -> HostSpec:
        view = View(
            tree.name, tree.ml, tree.tmp, tree.opt, tree.hosts_file, visible_paths(self._folder.state_folder.root)
        )
        python = host_python.create(tree.python)
        # A separate program, as `serve` is in the platform's containers.
        command = [str(python.executable), "-m", "smdp_entrypoint", "serve"]
        return HostSpec(os.getpid(), self._isolated, command, self._environment(tree, address, python), view)

    def _environment(self, tree: HostTree, address: Address, python: HostPython) -> dict[str, str]:
        requested: dict[str, str] = container_of(self._variant).get("Environment", {})
        environment = {
            **python.variables(host_environment()),
            "PIP_CACHE_DIR": str(self._folder.state_folder.pip_cache),
            "HOME": "/tmp" if self._isolated else str(tree.tmp),  # noqa: S108 (the host's own)
            **self._processors(requested),
            **requested,
            "AWS_REGION": self._folder.region,
            "AWS_DEFAULT_REGION": self._folder.region,
            **self._credentials(),
            # The hosts share this machine's network, so each listens at an address of its own.
            "SMDP_SERVE_ADDRESS": address.host,
            "SMDP_SERVE_TOKEN": address.token,
            **({"SAGEMAKER_BIND_TO_PORT": str(address.port)} if address.port != PORT else {}),
        }
        if not self._isolated:
            environment["SMDP_ML_ROOT"] = str(tree.ml)
            if len(str(tree.tmp)) <= LONGEST_TMP:
                environment.setdefault("TMPDIR", str(tree.tmp))
        return environment

    def _processors(self, requested: Mapping[str, str]) -> dict[str, str]:
        """On the platform each host has all processors of its instance."""
        available = max(1, (os.cpu_count() or 1) // self._hosts)
        available = min(available, self._variant.get("ServerlessConfig", {}).get("MaxConcurrency", available))
        text = requested.get("SAGEMAKER_MODEL_SERVER_WORKERS", "")
        workers = int(text) if text.isdecimal() and int(text) > 0 else available
        return {
            "SAGEMAKER_MODEL_SERVER_WORKERS": str(available),
            "OMP_NUM_THREADS": str(max(1, available // workers)),
        }

    def _credentials(self) -> dict[str, str]:
        """Of the model's role; none with network isolation."""
        model = self._variant["Model"]
        if model.get("EnableNetworkIsolation") or "ExecutionRoleArn" not in model:
            return {}
        user = Credentials(self._endpoint.access_key, self._endpoint.secret_key)
        keys = user.of(Holder("role", job=job_hash(self._folder.principal(self._variant["VariantName"]))))
        return {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_ENDPOINT_URL": self._endpoint.url,
        }


def startup_limit(variant: Mapping[str, Any]) -> float:
    """Seconds for a container to pass its first health check."""
    return _limit(variant, STARTUP_VARIABLE, variant.get("ContainerStartupHealthCheckTimeoutInSeconds", 600))


def invocation_limit(variant: Mapping[str, Any]) -> float:
    """Seconds for the answer to a request."""
    return _limit(variant, TIMEOUT_VARIABLE, INVOCATION_LIMIT)


def _limit(variant: Mapping[str, Any], name: str, longest: float) -> float:
    """The platform's limit, or the shorter one in the model's environment."""
    try:
        wanted = float(container_of(variant).get("Environment", {}).get(name, longest))
    except ValueError:
        return float(longest)
    return float(min(wanted, longest)) if wanted > 0 else float(longest)
