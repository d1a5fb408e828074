"""What the name of an instance type shows about its hosts."""

from __future__ import annotations

import re

_FAMILY = re.compile(r"ml\.(?P<family>[a-z0-9-]+)\.")
#: Families with AWS's Arm processors: m6g, c7gd, r8g. The letter after the number is g.
_ARM = re.compile(r"[a-z]+\d+g[a-z]*")


def has_gpus(name: str) -> bool:
    """Whether hosts of the type have NVIDIA GPUs: the families g and p, as in the SageMaker SDK."""
    return _family(name)[:1] in ("g", "p")


def is_arm(name: str) -> bool:
    return not has_gpus(name) and _ARM.fullmatch(_family(name)) is not None


def has_other_accelerators(name: str) -> bool:
    """Whether the type has Inferentia, Trainium or Gaudi accelerators, which need images of their own."""
    return _family(name).startswith(("inf", "trn", "dl"))


def _family(name: str) -> str:
    match = _FAMILY.match(name)
    return match["family"] if match is not None else ""
