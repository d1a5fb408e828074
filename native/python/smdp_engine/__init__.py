"""The package for training scripts: the engine's version, progress events, checkpoints and traces."""

from ._library import abi_version, build

__all__ = ["abi_version", "build"]
