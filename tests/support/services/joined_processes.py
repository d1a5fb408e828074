"""Processes that join one local cloud."""

from __future__ import annotations

import json
import subprocess

JOINS = """
import json, sys, time
from pathlib import Path
from smdp_launch.localcloud.client.connect import private
with private(Path(sys.argv[1])) as endpoint:
    print(json.dumps([endpoint.pid, endpoint.url]), flush=True)
    time.sleep(float(sys.argv[2]))
"""


def joined(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Process number and address of the server that the client has joined."""
    assert process.stdout is not None
    pid, url = json.loads(process.stdout.readline())
    return int(pid), str(url)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
