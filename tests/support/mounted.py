"""Runs a program on a channel that is mounted in a namespace of its own:

    python -m tests.support.mounted objects|folder SOURCE RATE LATENCY COUNTERS PROGRAM

The file system serves the files below the folder SOURCE; PROGRAM is Python, with the mount's path in `mount`. The
counters are written to the file COUNTERS at the end.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from smdp_launch.localcloud.inputs.counters import Counter
from smdp_launch.localcloud.inputs.file_system import FileSystem
from smdp_launch.localcloud.inputs.throttle import Throttle
from smdp_launch.localcloud.inputs.trees import FolderTree, Object, ObjectTree, Tree
from smdp_launch.localcloud.isolation import namespaces

_CLONE_NEWNS = 0x00020000


def objects_below(folder: Path) -> list[Object]:
    found = [one for one in sorted(folder.rglob("*")) if one.is_file()]
    return [Object(str(one.relative_to(folder)), str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in found]


def main() -> int:
    kind, source, rate, latency, counters, program = sys.argv[1:]
    tree: Tree = ObjectTree(objects_below(Path(source))) if kind == "objects" else FolderTree(source)
    with tempfile.TemporaryDirectory() as mount:
        namespaces.call("unshare", _CLONE_NEWNS)
        namespaces.mount(None, "/", None, namespaces.MS_REC | namespaces.MS_PRIVATE)
        descriptor = namespaces.mount_served(mount)
        reader = os.fork()
        if reader == 0:  # a reader in the server's process could wait for itself
            os.close(descriptor)
            code = 1
            try:
                exec(program, {"mount": Path(mount), "os": os, "Path": Path})
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        counter = Counter("FastFile")
        throttle = Throttle(float(rate), float(latency)) if float(rate) or float(latency) else None
        FileSystem(descriptor, tree, counter, throttle).start()
        code = os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1])
        Path(counters).write_text(json.dumps(counter.to_json()))
        namespaces.call("umount2", os.fsencode(mount), 2)
    return code


if __name__ == "__main__":
    sys.exit(main())
