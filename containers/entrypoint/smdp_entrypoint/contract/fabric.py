"""Settings for hosts with an Elastic Fabric Adapter, as AWS advises for the kernel and the NCCL plugin at hand.

The source is ``doc/efa-env-var.md`` of github.com/aws/aws-ofi-nccl, checked 2026-11-23.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Mapping, Tuple

Version = Tuple[int, int]

# The kernel itself keeps registered memory safe across fork() from here on.
_FORK_SAFE_KERNEL: Version = (5, 15)
# The last plugin that does not choose NCCL's protocol itself.
_PLUGIN_WITHOUT_PROTOCOL: Version = (1, 5)
_PLUGIN = "libnccl-net.so"
# Where EFA's installer and AWS's images have the plugin; NCCL looks in LD_LIBRARY_PATH first.
_PLUGIN_FOLDERS = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/usr/local/lib",
)
# Far more than any plugin; a larger file is another thing.
_LARGEST_PLUGIN = 64 * 1024 * 1024


def fabric_variables(environ: Mapping[str, str], kernel: str | None = None) -> dict[str, str]:
    """For a host that has the adapter.

    FI_EFA_USE_DEVICE_RDMA is left to libfabric, which knows the adapter's generation since 1.18 and refuses to work
    where it is asked for and missing. RDMAV_FORK_SAFE is never set: it breaks newer kernels, and libfabric has its own
    option for older ones.
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
    """Of the aws-ofi-nccl that NCCL finds; None where there is none, or it does not name its version."""
    folders = [*environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *_PLUGIN_FOLDERS]
    found = (_named_version(Path(folder, _PLUGIN)) for folder in folders if folder)
    return next((version for version in found if version is not None), None)


def _named_version(plugin: Path) -> Version | None:
    """The plugin logs its name and version when NCCL starts, so both stand in the file as one text."""
    try:
        content = plugin.read_bytes() if plugin.stat().st_size <= _LARGEST_PLUGIN else b""
    except OSError:
        return None
    found = re.search(rb"aws-ofi-nccl (\d+\.\d+)", content)
    return _version(found.group(1).decode("ascii")) if found else None


def _version(text: str) -> Version | None:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else None
