"""The version of the installed torch, without its import, which takes seconds in each process that collects tests."""

import importlib.metadata
import importlib.util
from typing import Tuple

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def torch_version() -> Tuple[int, int]:
    """Major and minor, (0, 0) without torch."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return 0, 0
    return int(major), int(minor)
