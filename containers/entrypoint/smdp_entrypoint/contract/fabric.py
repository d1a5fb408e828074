"""Settings for hosts with an Elastic Fabric Adapter, as AWS recommends for the kernel and the NCCL plugin in use.

The source is ``doc/efa-env-var.md`` of github.com/aws/aws-ofi-nccl, checked 2026-11-23.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Mapping, Tuple

Version = Tuple[int, int]

# From this version on the kernel keeps registered memory safe across fork().
_FORK_SAFE_KERNEL: Version = (5, 15)
# The last plugin that does not choose NCCL's protocol itself.
_PLUGIN_WITHOUT_PROTOCOL: Version = (1, 5)
_PLUGIN = "libnccl-net.so"
# Where EFA's installer and AWS's images put the plugin; NCCL searches LD_LIBRARY_PATH first.
_PLUGIN_FOLDERS = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/usr/local/lib",
)
# Far larger than any plugin; a larger file is not the plugin.
_LARGEST_PLUGIN = 64 * 1024 * 1024


def fabric_variables(environ: Mapping[str, str], kernel: str | None = None) -> dict[str, str]:
    """The variables for a host that has the adapter.

    FI_EFA_USE_DEVICE_RDMA is not set: libfabric 1.18 and later knows the adapter's generation, and fails where the
    variable requests RDMA that the adapter lacks. RDMAV_FORK_SAFE is never set: it breaks newer kernels, and libfabric
    has its own option for older kernels.
    """
    variables = {"FI_PROVIDER": "efa"}
    release = _version(kernel or platform.release())
    if release is not None and release < _FORK_SAFE_KERNEL:
        variables["FI_EFA_FORK_SAFE"] = "1"
    plugin = plugin_version(environ)
    if plugin is not None and plugin <= _PLUGIN_WITHOUT_PROTOCOL:
        variables["NCCL_PROTO"] = "simple"
    return variables


def plugin_version(environ: Mapping[str, str]) -> Version | None:
    """The version of the aws-ofi-nccl plugin that NCCL loads; None without a plugin or without a version in it."""
    folders = [*environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *_PLUGIN_FOLDERS]
    versions = (_named_version(Path(folder, _PLUGIN)) for folder in folders if folder)
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
