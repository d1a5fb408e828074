"""What the hosts of a job use besides this machine: an image, a network of their own, shared folders."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from smdp_launch.localcloud.isolation import images, network
from smdp_launch.localcloud.isolation.namespaces import Mount
from smdp_launch.localcloud.runtime.outcome import JobFailed


@dataclass(frozen=True)
class HostResources:
    """What all hosts of a job share.

    Args:
        image: an open image, where the hosts are containers.
        switch: process id of the network switch, where the hosts have a network of their own.
        speed: of a host's link to the switch, in bits a second; None for no limit.
        mounts: the shared folders, each entry for one host.
    """

    image: images.Image | None = None
    switch: int | None = None
    speed: int | None = None
    mounts: tuple[Mount, ...] = ()


class ResourceOpener:
    """Opens the image and the network of a job when they are first needed; `close` releases them.

    `network_warning` says why the hosts share this machine's network although a network of their own would suit them.
    """

    def __init__(self, request: Mapping[str, Any], job: str) -> None:
        self.network_warning = ""
        self._request = request
        self._job = job
        self._open = ExitStack()

    @cached_property
    def switch(self) -> network.Switch | None:
        """The switch of the hosts' own network; None where they share this machine's. Raises JobFailed."""
        needed = images.requested(self._request) or network.requested(self._request)
        if not needed and not network.recommended(self._request):
            return None
        try:
            switch = network.open_switch()
        except network.NetworkError as error:
            if needed:
                raise JobFailed(f"ClientError: {error}") from error
            self.network_warning = (
                f"The hosts share the network of the machine that runs smdp-launch ({error}): another job cannot use "
                "the same ports, and network isolation is not applied."
            )
            return None
        self._open.callback(switch.close)
        return switch

    @cached_property
    def _image_and_speed(self) -> tuple[images.Image | None, int | None]:
        try:
            image = self._open_image() if images.requested(self._request) else None
            return image, network.speed(self._request)
        except (images.ContainerError, network.NetworkError) as error:
            raise JobFailed(f"ClientError: {error}") from error

    def resources(self, mounts: tuple[Mount, ...]) -> HostResources:
        """Raises JobFailed where the image or the network cannot be had."""
        image, speed = self._image_and_speed
        return HostResources(image, self.switch.pid if self.switch is not None else None, speed, mounts)

    def _open_image(self) -> images.Image:
        image: str = self._request["AlgorithmSpecification"]["TrainingImage"]
        self._open.callback(images.close, self._job)
        return images.open_image(image, self._job)

    def close(self) -> None:
        self._open.close()
