"""What a simulated host is started with: command, environment, view of the file system."""

from __future__ import annotations

import os
import secrets
import site
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.catalog.faults import GRACE, Fault
from smdp_launch.catalog.faults import VARIABLE as FAULT
from smdp_launch.localcloud.arns import training_job_arn
from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.localcloud.environment import host_environment
from smdp_launch.localcloud.isolation import network
from smdp_launch.localcloud.isolation.container import Container
from smdp_launch.localcloud.isolation.images import Image
from smdp_launch.localcloud.isolation.namespaces import Mount, View
from smdp_launch.localcloud.isolation.network import Plug
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.protocol import role_credentials
from smdp_launch.localcloud.protocol.signatures import Credentials, Holder, mark
from smdp_launch.localcloud.runtime.host import Order
from smdp_launch.localcloud.runtime.lease import Lease
from smdp_launch.localcloud.runtime.tree import HostTree, host_names, host_number

# As the platform runs `train` in a container: the entrypoint is a program of its own, not a library of ours.
COMMAND = [sys.executable, "-m", "smdp_entrypoint"]
# In a request's Environment: whether CUDA is imitated in the workers; the entrypoint reads another one, and refuses
# it in a job on AWS.
_CUDA_VARIABLE = "SMDP_LOCAL_CUDA_ON_CPU"
_LONGEST_TMP = 60  # characters; longer names leave no room for socket paths, which may have 107


@dataclass(frozen=True)
class Grounds:
    """What the hosts of a job stand on besides this machine.

    Args:
        image: an open one, if they are containers.
        switch: the process of it, if they have a network of their own; `speed` is that of their links.
        mounts: folders that they share, each for one host.
    """

    image: Image | None = None
    switch: int | None = None
    speed: int | None = None
    mounts: tuple[Mount, ...] = ()


class Launch:
    def __init__(
        self,
        request: Mapping[str, Any],
        folder: JobFolder,
        lease: Lease,
        endpoint: Endpoint,
        *,
        isolated: bool,
        grounds: Grounds,
        fault: Fault | None,
    ) -> None:
        self._request = request
        self._folder = folder
        self._lease = lease
        self._endpoint = endpoint
        self._isolated = isolated
        self._grounds = grounds
        self._fault = fault
        self._token = secrets.token_hex(16)

    def order(self, tree: HostTree) -> Order:
        plug = self._plug(tree)
        if self._grounds.image is not None:
            return self._container_order(tree, self._grounds.image, plug)
        view = self._view(tree, self._visible())
        return Order(os.getpid(), self._isolated, self._command([]), self._environment(tree), view, plug=plug)

    def _command(self, entrypoint: Sequence[str]) -> list[str]:
        """As the platform runs it: `docker run IMAGE train`, where the request's own entrypoint and arguments take
        the place of the image's and of `train`. Our entrypoint is the `train` of hosts without an image."""
        algorithm = self._request["AlgorithmSpecification"]
        own = algorithm.get("ContainerEntrypoint", [])
        arguments = algorithm.get("ContainerArguments") or ([] if own else ["train"])
        command = [*(own or entrypoint), *arguments]
        return COMMAND if command == ["train"] and self._grounds.image is None else command

    def _view(self, tree: HostTree, visible: tuple[Path, ...]) -> View:
        mounts = tuple(one for one in self._grounds.mounts if tree.ml in one.target.parents)
        return View(tree.name, tree.ml, tree.tmp, tree.opt, tree.hosts_file, visible, mounts)

    def _plug(self, tree: HostTree) -> Plug | None:
        if self._grounds.switch is None:
            return None
        url = "" if self._request.get("EnableNetworkIsolation") else self._endpoint.url
        return Plug(self._grounds.switch, network.address(tree.number), url, self._grounds.speed)

    def _container_order(self, tree: HostTree, image: Image, plug: Plug | None) -> Order:
        container = Container(image.root, tree.layer, image.folder)
        view = self._view(tree, ())
        environment = {"HOME": "/root", **image.environment, **self._job_environment()}
        command = self._command(image.entrypoint)
        return Order(os.getpid(), True, command, environment, view, container, plug)

    def _environment(self, tree: HostTree) -> dict[str, str]:
        environment = {
            **host_environment(),
            "HOME": "/tmp" if self._isolated else str(tree.tmp),  # noqa: S108 (the host's own)
            **self._job_environment(),
            "SMDP_MASTER_PORT": str(self._lease.master_port),
        }
        if not self._isolated:
            environment |= {"SMDP_ML_ROOT": str(tree.ml), "SMDP_HOSTS_FILE": str(tree.hosts_file)}
            if len(str(tree.tmp)) <= _LONGEST_TMP:
                environment.setdefault("TMPDIR", str(tree.tmp))
        return environment

    def _job_environment(self) -> dict[str, str]:
        """The same for every host, whatever it is."""
        given: dict[str, str] = self._request.get("Environment", {})
        return {
            "OMP_NUM_THREADS": str(self._threads_per_worker(given)),
            # The hosts' engines prove to each other that they are of one job; nobody else on this machine can join.
            "SMDP_JOB_TOKEN": self._token,
            **self._notice(),
            **{name: value for name, value in given.items() if name != FAULT},
            **({"SMDP_CUDA_ON_CPU": "1"} if given.get(_CUDA_VARIABLE) == "1" else {}),
            "TRAINING_JOB_NAME": self._folder.name,
            "TRAINING_JOB_ARN": training_job_arn(self._folder.name, self._folder.region),
            "AWS_REGION": self._folder.region,
            "AWS_DEFAULT_REGION": self._folder.region,
            **self._access(),
            **self._proxies(),
            "SMDP_REQUIRE_GPU": "0",  # the instance type is the request's, the machine is not
        }

    def _notice(self) -> dict[str, str]:
        """A shorter notice than the platform's, for the entrypoint: a host says how long it has, and ends in time."""
        fault = self._fault
        if fault is None or fault.kind != "spot" or not 0 < fault.grace < GRACE:
            return {}
        return {"SMDP_STOP_BUDGET": f"{fault.grace:g}"}

    def _access(self) -> dict[str, str]:
        """To the server's S3; nothing of it for containers without a network, which get all they need as channels."""
        if self._request.get("EnableNetworkIsolation"):
            return {}
        url, person = self._endpoint.url, Credentials(self._endpoint.access_key, self._endpoint.secret_key)
        if self._fault is not None and self._fault.kind == "expire":
            return {**role_credentials.environment(url, person, self._folder.name), "AWS_ENDPOINT_URL": url}
        keys = person.of(Holder("role", job=mark(self._folder.name)))
        return {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_ENDPOINT_URL": url,
        }

    @property
    def replaced_variables(self) -> list[str]:
        """Of the request's environment: no other proxy can be reached from a network of the job's own."""
        return sorted(self._proxies().keys() & self._request.get("Environment", {}).keys())

    def _proxies(self) -> dict[str, str]:
        if self._grounds.switch is None or self._request.get("EnableNetworkIsolation"):
            return {}
        names = host_names(self._request["ResourceConfig"]["InstanceCount"])
        return network.proxy_variables({name: network.address(host_number(name)) for name in names})

    def _threads_per_worker(self, environment: Mapping[str, str]) -> int:
        workers = environment.get("SMDP_WORKERS_PER_HOST", "1")
        hosts: int = self._request["ResourceConfig"]["InstanceCount"]
        per_host = int(workers) if workers.isdecimal() and int(workers) > 0 else 1
        return max(1, (os.cpu_count() or 1) // (hosts * per_host))

    def _visible(self) -> tuple[Path, ...]:
        """What the interpreter, its packages and the run need: the names that are asked for, and the real ones."""
        names = [sys.prefix, sys.base_prefix, sys.executable, site.getuserbase(), *sys.path]
        paths = [Path(name) for name in names if name] + [self._folder.state_folder.root]
        return tuple(dict.fromkeys(path for name in paths for path in (name, name.resolve())))
