"""The specs of a job's hosts: command, environment and view of the file system."""

from __future__ import annotations

import os
import secrets
import site
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smdp_launch.catalog.faults import GRACE, HANG_VARIABLE, Fault
from smdp_launch.catalog.faults import VARIABLE as FAULT
from smdp_launch.host_counts import host_count
from smdp_launch.localcloud.arns import training_job_arn
from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.localcloud.environment import adapter_cache, host_environment
from smdp_launch.localcloud.groups import host_names
from smdp_launch.localcloud.isolation import host_python, network
from smdp_launch.localcloud.isolation.container import Container
from smdp_launch.localcloud.isolation.host_python import HostPython
from smdp_launch.localcloud.isolation.images import Image
from smdp_launch.localcloud.isolation.namespaces import View
from smdp_launch.localcloud.isolation.network import Plug
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.processes import hang_signal
from smdp_launch.localcloud.protocol import role_credentials
from smdp_launch.localcloud.protocol.signatures import Credentials, Holder, job_hash
from smdp_launch.localcloud.runtime.host_process import HostSpec
from smdp_launch.localcloud.runtime.host_resources import HostResources
from smdp_launch.localcloud.runtime.port_lease import Lease
from smdp_launch.localcloud.runtime.tree import HostTree, host_number

# In a request's Environment: whether the workers emulate CUDA. The entrypoint reads another variable, and refuses it
# in a job on AWS.
_CUDA_VARIABLE = "SMDP_LOCAL_CUDA_ON_CPU"
LONGEST_TMP = 60  # characters: a socket's path below it may have 107


class Launch:
    def __init__(
        self,
        request: Mapping[str, Any],
        folder: JobFolder,
        lease: Lease,
        endpoint: Endpoint,
        *,
        isolated: bool,
        resources: HostResources,
        fault: Fault | None,
    ) -> None:
        self._request = request
        self._folder = folder
        self._lease = lease
        self._endpoint = endpoint
        self._isolated = isolated
        self._resources = resources
        self._fault = fault
        self._token = secrets.token_hex(16)

    def spec(self, tree: HostTree) -> HostSpec:
        plug = self._plug(tree)
        if self._resources.image is not None:
            return self._container_spec(tree, self._resources.image, plug)
        view = self._view(tree, visible_paths(self._folder.state_folder.root))
        python = host_python.create(tree.python)
        command = self._command([])
        if command == ["train"]:  # a separate program, not a library, as in the platform's containers
            command = [str(python.executable), "-m", "smdp_entrypoint"]
        return HostSpec(os.getpid(), self._isolated, command, self._environment(tree, python), view, plug=plug)

    def _command(self, entrypoint: Sequence[str]) -> list[str]:
        """The command that the platform runs: `docker run IMAGE train`.

        An entrypoint and arguments in the request replace those of the image and `train`. In a host without an image
        `train` is smdp_entrypoint.
        """
        algorithm = self._request["AlgorithmSpecification"]
        own = algorithm.get("ContainerEntrypoint", [])
        arguments = algorithm.get("ContainerArguments") or ([] if own else ["train"])
        return [*(own or entrypoint), *arguments]

    def _view(self, tree: HostTree, visible: tuple[Path, ...]) -> View:
        mounts = tuple(one for one in self._resources.mounts if tree.ml in one.target.parents)
        return View(tree.name, tree.ml, tree.tmp, tree.opt, tree.hosts_file, visible, mounts)

    def _plug(self, tree: HostTree) -> Plug | None:
        if self._resources.switch is None:
            return None
        url = "" if self._request.get("EnableNetworkIsolation") else self._endpoint.url
        return Plug(self._resources.switch, network.address(tree.number), url, self._resources.speed)

    def _container_spec(self, tree: HostTree, image: Image, plug: Plug | None) -> HostSpec:
        container = Container(image.root, tree.layer, image.folder)
        view = self._view(tree, ())
        environment = {"HOME": "/root", **image.environment, **self._job_environment()}
        command = self._command(image.entrypoint)
        return HostSpec(os.getpid(), True, command, environment, view, container, plug)

    def _environment(self, tree: HostTree, python: HostPython) -> dict[str, str]:
        environment = {
            **python.variables(host_environment()),
            "PIP_CACHE_DIR": str(self._folder.state_folder.pip_cache),
            "HOME": "/tmp" if self._isolated else str(tree.tmp),  # noqa: S108 (the host's own)
            **self._job_environment(),
            "SMDP_MASTER_PORT": str(self._lease.master_port),
        }
        if not self._isolated:
            environment |= {"SMDP_ML_ROOT": str(tree.ml), "SMDP_HOSTS_FILE": str(tree.hosts_file)}
            if len(str(tree.tmp)) <= LONGEST_TMP:
                environment.setdefault("TMPDIR", str(tree.tmp))
        return environment

    def _job_environment(self) -> dict[str, str]:
        """The variables that every host has, with or without an image."""
        requested: dict[str, str] = self._request.get("Environment", {})
        return {
            "OMP_NUM_THREADS": str(self._threads_per_worker(requested)),
            # With it the hosts' engines prove that they belong to one job: no other process can join the group.
            "SMDP_JOB_TOKEN": self._token,
            **self._stop_budget(),
            **self._rehearsed_hang(),
            **self._network(),
            **{name: value for name, value in requested.items() if name != FAULT},
            **({"SMDP_CUDA_ON_CPU": "1"} if requested.get(_CUDA_VARIABLE) == "1" else {}),
            "TRAINING_JOB_NAME": self._folder.name,
            "TRAINING_JOB_ARN": training_job_arn(self._folder.name, self._folder.region),
            "AWS_REGION": self._folder.region,
            "AWS_DEFAULT_REGION": self._folder.region,
            **self._credentials(),
            **self._proxies(),
            "SMDP_REQUIRE_GPU": "0",  # the request names an instance type with GPUs; this machine may have none
        }

    def _network(self) -> dict[str, str]:
        """The speed of the hosts' links for the entrypoint's probe: the instance type of the request has another."""
        if self._resources.switch is None:
            return {}
        return {"SMDP_NETWORK_GBIT": f"{(self._resources.speed or 0) / 1e9:g}"}

    def _stop_budget(self) -> dict[str, str]:
        """For the entrypoint: an injected interruption that gives fewer seconds than the platform does."""
        fault = self._fault
        if fault is None or fault.kind != "spot" or not 0 < fault.grace < GRACE:
            return {}
        return {"SMDP_STOP_BUDGET": f"{fault.grace:g}"}

    def _rehearsed_hang(self) -> dict[str, str]:
        """For the workers: where they stop, and at which signal of the fault injector."""
        if self._fault is None or self._fault.kind != "hang":
            return {}
        return {HANG_VARIABLE: f"{self._fault.where}:{hang_signal()}"}

    def _credentials(self) -> dict[str, str]:
        """For the server's S3; none with network isolation, where hosts get all their data as channels."""
        if self._request.get("EnableNetworkIsolation"):
            return {}
        url, user = self._endpoint.url, Credentials(self._endpoint.access_key, self._endpoint.secret_key)
        if self._fault is not None and self._fault.kind == "expire":
            return {**role_credentials.environment(url, user, self._folder.name), "AWS_ENDPOINT_URL": url}
        keys = user.of(Holder("role", job=job_hash(self._folder.name)))
        return {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_ENDPOINT_URL": url,
        }

    @property
    def replaced_variables(self) -> list[str]:
        """Variables of the request that are replaced: a network of the job's own reaches no other proxy."""
        return sorted(self._proxies().keys() & self._request.get("Environment", {}).keys())

    def _proxies(self) -> dict[str, str]:
        if self._resources.switch is None or self._request.get("EnableNetworkIsolation"):
            return {}
        names = host_names(host_count(self._request["ResourceConfig"]))
        return network.proxy_variables({name: network.address(host_number(name)) for name in names})

    def _threads_per_worker(self, environment: Mapping[str, str]) -> int:
        workers = environment.get("SMDP_WORKERS_PER_HOST", "1")
        hosts = host_count(self._request["ResourceConfig"])
        per_host = int(workers) if workers.isdecimal() and int(workers) > 0 else 1
        return max(1, (os.cpu_count() or 1) // (hosts * per_host))


def visible_paths(state: Path) -> tuple[Path, ...]:
    """Paths that the interpreter, its packages and the run need, with and without links resolved."""
    names = [sys.prefix, sys.base_prefix, sys.executable, site.getuserbase(), *sys.path]
    adapters = adapter_cache()
    paths = [Path(name) for name in names if name] + [state]
    paths += [adapters] if adapters is not None else []
    return tuple(dict.fromkeys(path for name in paths for path in (name, name.resolve())))
