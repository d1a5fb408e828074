"""What a job's script sees on its hosts."""

from __future__ import annotations

import json
from typing import Any

from tests.support.services.cloud import Cloud

#: A script that prints what its host has, for `seen`.
LOOKS = """
    import json, os, pathlib, socket, sys
    root = pathlib.Path(os.environ.get("SMDP_ML_ROOT", "/opt/ml"))
    config = {path.stem: json.loads(path.read_text()) for path in (root / "input/config").iterdir()}
    pathlib.Path("/tmp/of-this-host-smdp-test").write_text("x") if root == pathlib.Path("/opt/ml") else None
    stat = pathlib.Path("/proc/1/cmdline").read_bytes().decode().split(chr(0))
    print("looks", json.dumps({
        "host": socket.gethostname(),
        "address": socket.gethostbyname(socket.gethostname()) if root == pathlib.Path("/opt/ml") else "",
        "first process": stat,
        "tmp": sorted(os.listdir("/tmp")),
        "opt": sorted(os.listdir("/opt")),
        "shm": sorted(os.listdir("/dev/shm")),
        "home": os.environ["HOME"],
        "processes": sum(name.isdecimal() for name in os.listdir("/proc")),
        "environ": dict(os.environ),
        "config": config,
        "uid": os.getuid(),
    }), flush=True)
"""


def seen(cloud: Cloud, name: str) -> dict[str, dict[str, Any]]:
    found = (line.partition("looks ") for line in cloud.log(name) if "looks {" in line)
    return {head.partition(":")[0].strip("[] "): json.loads(text) for head, _, text in found}
