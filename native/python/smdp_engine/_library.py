"""The engine's shared library, loaded once through its C interface (include/smdp/engine.h)."""

import ctypes
import functools
from pathlib import Path

_ABI_VERSION = 1


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The loaded library.

    Raises:
        OSError: the package was installed without its compiled part.
        RuntimeError: the compiled part has another interface version than this package.
    """
    loaded = ctypes.CDLL(str(Path(__file__).with_name("libsmdp_engine.so")))
    loaded.smdp_abi_version.restype = ctypes.c_int
    loaded.smdp_engine_build.restype = ctypes.c_char_p
    version = loaded.smdp_abi_version()
    if version != _ABI_VERSION:
        raise RuntimeError(
            f"libsmdp_engine.so has interface version {version}, this package needs {_ABI_VERSION}: "
            "reinstall smdp-engine"
        )
    return loaded


def abi_version() -> int:
    return int(library().smdp_abi_version())


def build() -> str:
    """The engine's build, such as ``0.1.0+3f2a9c1d5e77``: its version and a digest of its sources."""
    return str(library().smdp_engine_build().decode())
