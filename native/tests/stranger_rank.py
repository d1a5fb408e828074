"""A rank of the job that test_strangers.py runs: opens, sums, tells the digest of all sums.

Arguments: rank, world size, host, port, and for one that is to be held in the middle of its hellos the shared record.
"""

import ctypes
import hashlib
import mmap
import sys
from pathlib import Path

import c_interface
import numpy as np
from fire.faults import KINDS, POINTS
from fire.record import Record

ROUNDS = 20
HELD_AT = 11  # of a rank's own hellos: one with rank 0, one with its neighbour, then those between hosts


def hold(path: str) -> Record:
    """Wait in the midst of the hellos, as if the link were to be cut, until the record says that it was."""
    with Path(path).open("r+b") as file:
        record = Record.from_buffer(mmap.mmap(file.fileno(), 0))
    strike = ctypes.CDLL(None)
    strike.strike_share(ctypes.byref(record))
    strike.strike_arm(POINTS["hello"], HELD_AT, 0, KINDS["link"])
    return record


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def main() -> None:
    rank, size, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
    record = hold(sys.argv[5]) if len(sys.argv) > 5 else None  # alive as long as the engine
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
