"""PyTorch's own suite of collectives and DistributedDataParallel, from its wheel, with settings that make the suite run
the tests of Gloo on a plug-in backend.

Import this before other modules that import torch: ranks are forked from this process, so no thread may run in it.
"""

import os
import sys
import unittest
from pathlib import Path
from typing import Any, Dict, List

GLOO = "gloo"
OURS = "smddp"
# Two simulated hosts each. A few tests need exactly four ranks, a few at least eight.
USUAL_SIZE = 4
LARGE_SIZE = 8

# The suite selects the tests of a backend at its import, so it is imported with the settings of Gloo.
os.environ.update(
    BACKEND=GLOO,
    WORLD_SIZE=str(USUAL_SIZE),
    INIT_METHOD="file://set-for-each-test",
    MASTER_ADDR="127.0.0.1",
    OMP_NUM_THREADS="1",
    OPENBLAS_NUM_THREADS="1",
)

import torch  # noqa: E402
import torch.distributed.distributed_c10d as c10d  # noqa: E402
from torch.testing._internal.distributed import distributed_test as torchs  # noqa: E402

# The exit codes with which a rank of the suite reports a skip or an error.
SKIPS: Dict[int, str] = {skip.exit_code: skip.message for skip in torchs.TEST_SKIPS.values()}
TOO_SMALL: str = torchs.TEST_SKIPS["small_worldsize"].message
ERROR_EXIT_CODE: int = torchs.MultiProcessTestCase.TEST_ERROR_EXIT_CODE
# The suite itself does not check the exit codes of this test's ranks.
ANY_END = ("test_ddp_has_finalized",)


class Suite(torchs.TestDistBackend, torchs.DistributedTest._DistTestBase):
    """The tests, collected as in PyTorch's own runner."""


def key() -> str:
    """A name for the environment of the results, which depend on the version of torch and the devices."""
    return f"torch-{torch.__version__}-gpus-{torch.cuda.device_count()}"


def names() -> List[str]:
    return [str(name) for name in unittest.TestLoader().getTestCaseNames(Suite)]


def never_asked() -> Dict[str, str]:
    """Tests that the suite skips for Gloo, with the suite's reason."""
    tests = {name: getattr(Suite, name) for name in names()}
    return {name: test.__unittest_skip_why__ for name, test in tests.items() if hasattr(test, "__unittest_skip_why__")}


class LikeGloo(str):
    """The backend's name, which equals Gloo's name in the suite's checks."""

    def __eq__(self, other: object) -> bool:
        return other == GLOO or str(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def register_ours() -> None:
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401


def become(backend: str, folder: Path, rank: int, size: int) -> None:
    """Set the environment and the names of ``backend`` in a forked rank for a test whose files are in ``folder``."""
    torchs.INIT_METHOD = f"file://{folder}/init_dir/shared_init_file"
    os.environ.update(
        TEMP_DIR=str(folder),
        INIT_METHOD=torchs.INIT_METHOD,
        BACKEND=backend,
        WORLD_SIZE=str(size),
        RANK=str(rank),
        SMDP_HOST_ID=f"algo-{rank // (size // 2) + 1}",
        SMDP_INTERFACE="127.0.0.1",
        SMDP_JOB_TOKEN="0123456789abcdef0123456789abcdef",
    )
    if backend == OURS:
        torchs.BACKEND = LikeGloo(OURS)
        torchs.PROFILING_SUPPORTED_BACKENDS.append(OURS)
        torchs.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(OURS)
        forbid_gloo()


def forbid_gloo() -> None:
    """From here on only groups that are requested with Gloo's name may use Gloo."""
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
            raise AssertionError(f"a Gloo group was created inside a group of {making[-1]}")
        make_gloo(self, *others, **named)

    c10d._new_process_group_helper = watched_group
    c10d.ProcessGroupGloo.__init__ = watched_gloo


def run_rank(name: str, rank: int, folder: Path, pipe: Any) -> int:
    """Run a rank of a test and exit with its code."""
    try:
        Suite._run(rank, name, str(folder / "store"), pipe)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0
