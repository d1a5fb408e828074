"""Values in job files that have a meaning in every local cloud and nowhere else."""

from __future__ import annotations

#: Id of a file system of either type: this machine's files, at their own paths.
THIS_MACHINE = "fs-00000000000000000"

#: In place of a link's speed: the job gets a network of its own, without a speed limit.
OWN_NETWORK = "own"
