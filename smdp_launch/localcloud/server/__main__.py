"""`python -m smdp_launch.localcloud.server --state DIR` is the server process. `client.connect` starts it."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from smdp_launch.disk import is_full
from smdp_launch.localcloud.environment import isolate
from smdp_launch.localcloud.processes import exit_fast


def main() -> int:
    parser = argparse.ArgumentParser(prog="smdp_launch.localcloud.server")
    parser.add_argument("--state", type=Path, required=True, help="folder that holds objects, jobs and logs")
    arguments = parser.parse_args()
    gc.set_threshold(50_000)  # imports create many objects that are never freed
    isolate()  # before the server's imports: moto reads its settings from the environment when imported
    from smdp_launch.localcloud.client.connect import DISK_FULL
    from smdp_launch.localcloud.layout import StateFolder
    from smdp_launch.localcloud.server.server import serve

    try:
        return serve(StateFolder.at(arguments.state))
    except OSError as error:
        if not is_full(error):
            raise
        return DISK_FULL  # the log has no space for a reason


if __name__ == "__main__":
    exit_fast(main())
