"""Settings for hosts with an Elastic Fabric Adapter, as AWS recommends for the kernel, libfabric and the NCCL plugin.

The source is ``doc/efa-env-var.md`` of github.com/aws/aws-ofi-nccl, checked 2026-11-23. AWS's training toolkit sets
FI_EFA_USE_DEVICE_RDMA on the same instance types (``SM_EFA_RDMA_INSTANCES``).
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Mapping, Tuple

from smdp_entrypoint.contract.devices import ask

Version = Tuple[int, int]

# From this version on the kernel keeps registered memory safe across fork().
_FORK_SAFE_KERNEL: Version = (5, 15)
# The last plugin that does not choose NCCL's protocol itself.
_PLUGIN_WITHOUT_PROTOCOL: Version = (1, 5)
_PLUGIN = "libnccl-net.so"
# The plugin's names: that of EFA's installer since 1.44 is the second.
_PLUGIN_NAMES = (_PLUGIN, "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so")
# Where EFA's installer and AWS's images put the plugin; NCCL searches LD_LIBRARY_PATH first.
_PLUGIN_FOLDERS = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/usr/local/lib",
)
_SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib")
# The names and paths of all libraries that the system's linker finds.
_LINKER_CACHE = Path("/etc/ld.so.cache")
# From this version on, libfabric uses the RDMA of the adapter without a variable.
_FABRIC_WITH_RDMA: Version = (1, 18)
_RDMA_TYPES = frozenset({"ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge"})
_FABRIC = "libfabric.so.1"
# A process of its own loads the library, because libraries that it loads may replace the handlers of signals.
_FABRIC_VERSION = """
import ctypes, sys
for name in sys.argv[1:]:
    try:
        version = ctypes.CDLL(name).fi_version()
    except (OSError, AttributeError):
        continue
    print("libfabric", version >> 16, version & 0xFFFF)
    break
"""
# Far larger than any plugin; a larger file is not the plugin.
_LARGEST_PLUGIN = 64 * 1024 * 1024


def fabric_variables(environ: Mapping[str, str], kernel: str | None = None, instance_type: str = "") -> dict[str, str]:
    """The variables for a host that has the adapter.

    FI_EFA_USE_DEVICE_RDMA is set only for a libfabric before 1.18, which needs it: later versions know the adapter's
    generation, and fail where the variable requests RDMA that the adapter lacks. RDMAV_FORK_SAFE is never set: it
    breaks newer kernels, and libfabric has its own option for older kernels.
    """
    variables = {"FI_PROVIDER": "efa"}
    release = _version(kernel or platform.release())
    if release is not None and release < _FORK_SAFE_KERNEL:
        variables["FI_EFA_FORK_SAFE"] = "1"
    if instance_type in _RDMA_TYPES:
        library = libfabric_version(environ)
        if library is not None and library < _FABRIC_WITH_RDMA:
            variables["FI_EFA_USE_DEVICE_RDMA"] = "1"
    plugin = plugin_version(environ)
    if plugin is not None and plugin <= _PLUGIN_WITHOUT_PROTOCOL:
        variables["NCCL_PROTO"] = "simple"
    return variables


def libfabric_version(environ: Mapping[str, str]) -> Version | None:
    """The version of the libfabric that the engine loads; None if there is none."""
    chosen = environ.get("SMDP_LIBFABRIC")
    folders = ("/opt/amazon/efa/lib64", "/opt/amazon/efa/lib")
    names = [chosen] if chosen else [_FABRIC, *(f"{folder}/{_FABRIC}" for folder in folders)]
    answer = ask([sys.executable, "-c", _FABRIC_VERSION, *names])
    found = re.search(r"^libfabric (\d+) (\d+)$", answer.output, re.MULTILINE)
    return (int(found.group(1)), int(found.group(2))) if found else None


def has_plugin(environ: Mapping[str, str]) -> bool:
    """Whether NCCL finds a plugin for EFA. Without one, it exchanges between hosts over TCP."""
    if environ.get("NCCL_NET_PLUGIN"):
        return True
    folders = [*_plugin_folders(environ), *_SYSTEM_FOLDERS]
    if any(Path(folder, name).exists() for folder in folders for name in _PLUGIN_NAMES):
        return True
    try:
        known = _LINKER_CACHE.read_bytes()
    except OSError:
        return False
    return any(name.encode("ascii") in known for name in _PLUGIN_NAMES)


def _plugin_folders(environ: Mapping[str, str]) -> list[str]:
    return [*filter(None, environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)), *_PLUGIN_FOLDERS]


def plugin_version(environ: Mapping[str, str]) -> Version | None:
    """The version of the aws-ofi-nccl plugin that NCCL loads; None without a plugin or without a version in it."""
    plugins = (Path(folder, name) for folder in _plugin_folders(environ) for name in _PLUGIN_NAMES)
    versions = (_named_version(plugin) for plugin in plugins)
    return next((version for version in versions if version is not None), None)


def _named_version(plugin: Path) -> Version | None:
    """The plugin logs its name and version when NCCL starts, so its file contains both as one text."""
    try:
        content = plugin.read_bytes() if plugin.stat().st_size <= _LARGEST_PLUGIN else b""
    except OSError:
        return None
    match = re.search(rb"aws-ofi-nccl (\d+\.\d+)", content)
    return _version(match.group(1).decode("ascii")) if match else None


def _version(text: str) -> Version | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None
