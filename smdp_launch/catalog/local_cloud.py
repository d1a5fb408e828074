"""What jobs may name that every local cloud has, and no other."""

from __future__ import annotations

#: A file system, of either type: this machine's files, at their own paths.
THIS_MACHINE = "fs-00000000000000000"

#: In place of a link's speed: a network of the job's own, without a limit.
OWN_NETWORK = "own"
