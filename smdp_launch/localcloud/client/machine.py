"""Whether this machine can run simulated hosts in containers, and give them a network of their own."""

from __future__ import annotations

from smdp_launch.localcloud.isolation import images, network
from smdp_launch.localcloud.isolation.images import ContainerError
from smdp_launch.localcloud.isolation.network import bits_per_second

__all__ = ["ContainerError", "bits_per_second", "check_image", "network_refusal"]


def check_image(name: str) -> None:
    """Raises ContainerError where no host can run from the image on this machine."""
    images.check(name)


def network_refusal(*, is_shaped: bool) -> str | None:
    """Why hosts cannot have a network of their own; None where they can.

    Args:
        is_shaped: whether its links have a speed limit, which needs more rights and programs.
    """
    return network.shaping_refusal() if is_shaped else network.refusal()
