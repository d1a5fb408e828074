"""A rank of the job in test_unauthenticated_clients.py: opens the engine, computes sums, prints the digest of all sums.

Arguments: rank, world size, host, port; for a rank that pauses in the middle of its hellos, the shared record too.
"""

import ctypes
import hashlib
import mmap
import sys
from pathlib import Path

import c_interface
import numpy as np
from fault_injection.faults import KINDS, POINTS
from fault_injection.record import Record

ROUNDS = 20
PAUSE_AT = 11  # number of the hello: one with rank 0, one with the neighbour, then those between hosts


def pause(path: str) -> Record:
    """Pause in the middle of the hellos, as for a cut link, until the record says that the link is cut."""
    with Path(path).open("r+b") as file:
        record = Record.from_buffer(mmap.mmap(file.fileno(), 0))
    injector = ctypes.CDLL(None)
    injector.fault_share(ctypes.byref(record))
    injector.fault_arm(POINTS["hello"], PAUSE_AT, 0, KINDS["link"])
    return record


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def main() -> None:
    rank, size, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
    record = pause(sys.argv[5]) if len(sys.argv) > 5 else None  # referenced as long as the engine exists
    engine = c_interface.Engine(
        c_interface.Library(c_interface.installed()), rank, size, c_interface.options_of(sys.argv[3], port)
    )
    print("open", descriptors(), flush=True)
    group = engine.group(list(range(size)), "work")
    values = np.random.default_rng(rank).standard_normal(1 << 18).astype(np.float32)
    digest = hashlib.sha256()
    for _ in range(ROUNDS):
        sys.stdin.readline()
        digest.update(engine.all_reduce(group, values, "float32", "sum").tobytes())
        values = values * np.float32(0.5) + np.float32(rank)
        print("summed", flush=True)
    print("digest", digest.hexdigest(), descriptors(), flush=True)
    engine.close()
    del record


if __name__ == "__main__":
    main()
