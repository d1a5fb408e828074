"""What a training script imports: the engine's identity and the reporting of progress."""

from ._library import abi_version, build

__all__ = ["abi_version", "build"]
