"""PyTorch's own suite of collectives and DistributedDataParallel, which comes with PyTorch, and what it must be told
so that a plug-in backend meets the very tests that Gloo meets.

Import this before anything else that imports torch: processes are forked from this one, so no thread may run in it.
"""

import os
import sys
import types
import unittest
from pathlib import Path
from typing import Any, Dict, List

GLOO = "gloo"
OURS = "smddp"
WORLD_SIZE = 4

# The suite decides while it is imported which tests a backend is asked: so it is imported as for Gloo.
os.environ.update(
    BACKEND=GLOO,
    WORLD_SIZE=str(WORLD_SIZE),
    INIT_METHOD="file://set-for-each-test",
    MASTER_ADDR="127.0.0.1",
    TEMP_DIR="/nonexistent",
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
    TORCH_SHOW_CPP_STACKTRACES="0",
)

import torch  # noqa: E402
import torch.distributed.distributed_c10d as c10d  # noqa: E402
from torch.testing._internal.distributed import distributed_test as torchs  # noqa: E402


class Suite(torchs.TestDistBackend, torchs.DistributedTest._DistTestBase):
    """The tests, as the suite's own file for freshly started processes puts them together."""


def key() -> str:
    """Names what a cached result holds for."""
    return f"torch-{torch.__version__}-ranks-{WORLD_SIZE}"


def names() -> List[str]:
    return [str(name) for name in unittest.TestLoader().getTestCaseNames(Suite)]


def skipped_before_start() -> Dict[str, str]:
    """Tests that no backend treated as Gloo is asked here, and the suite's reason."""
    reasons = {}
    for name in names():
        test = getattr(Suite, name)
        if getattr(test, "__unittest_skip__", False):
            reasons[name] = str(test.__unittest_skip_why__)
    return reasons


class LikeGloo(str):
    """Our backend's name; where a test asks whether it is Gloo, it is."""

    def __eq__(self, other: object) -> bool:
        return other == GLOO or str.__eq__(self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def register_ours() -> None:
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401


def become(backend: str, folder: Path, rank: int) -> None:
    """In a forked worker: the environment and names of ``backend`` for a test whose files are in ``folder``."""
    init_method = f"file://{folder}/init_dir/shared_init_file"
    os.environ.update(
        TEMP_DIR=str(folder),
        INIT_METHOD=init_method,
        BACKEND=backend,
        RANK=str(rank),
        SMDP_HOST_ID=f"algo-{rank // 2 + 1}",  # two simulated hosts of two ranks
        SMDP_INTERFACE="127.0.0.1",
        SMDP_JOB_TOKEN="0123456789abcdef0123456789abcdef",
    )
    module: Any = torchs
    module.INIT_METHOD = init_method
    if backend == OURS:
        module.BACKEND = LikeGloo(OURS)
        for asked in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
            getattr(module, asked).append(OURS)
        forbid_gloo()


def forbid_gloo() -> None:
    """From here on a group that was not asked of Gloo by name may not be made of it, in whole or in part."""
    making: List[str] = []
    make_group, make_gloo = c10d._new_process_group_helper, c10d.ProcessGroupGloo.__init__

    def watched_group(size: int, rank: int, ranks: Any, backend: Any, *others: Any, **named: Any) -> Any:
        making.append(str(backend))
        try:
            return make_group(size, rank, ranks, backend, *others, **named)
        finally:
            making.pop()

    def watched_gloo(self: Any, *others: Any, **named: Any) -> None:
        if making and GLOO not in making[-1]:
            raise AssertionError(f"a Gloo group was made inside a group of {making[-1]}")
        make_gloo(self, *others, **named)

    c10d._new_process_group_helper = watched_group
    c10d.ProcessGroupGloo.__init__ = watched_gloo


def run_rank(name: str, rank: int, store: str, pipe: Any) -> int:
    """One rank of one test, to its exit code."""
    try:
        Suite._run(rank, name, store, pipe)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


SKIPS: Dict[int, str] = {
    skip.exit_code: skip.message for skip in torchs.TEST_SKIPS.values()
}
ERROR_EXIT_CODE = int(Suite.TEST_ERROR_EXIT_CODE)
# The suite itself does not look at how the ranks of this one end.
ANY_END = ("test_ddp_has_finalized",)
__all__: List[str] = []
_ = types
