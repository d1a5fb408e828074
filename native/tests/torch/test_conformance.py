"""A part of PyTorch's own distributed suite; `make test-conformance` runs all of it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

RUN = Path(__file__).parents[2] / "conformance" / "run.py"
SLICE = [
    "test_DistributedDataParallelCPU",
    "test_all_gather_coalesced_with_empty",
    "test_all_reduce_coalesced_sum",
    "test_all_reduce_sum_complex",
    "test_barrier_timeout_global",
    "test_batch_isend_irecv_gloo_tags",
    "test_broadcast_full_group",
    "test_gather_object_subgroup",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_scatter_object_list",
    "test_send_recv_any_source",
    "test_sparse_all_reduce_sum",
]
BY_NAME = "test_ddp_logging_data_cpu"  # checks for a name that no plug-in can have

pytestmark = pytest.mark.torch


def _run(tmp_path: Path, tests: List[str], listed: List[str]) -> "subprocess.CompletedProcess[str]":
    known = tmp_path / "known.json"
    known.write_text(json.dumps([{"reason": "for this test", "tests": listed}]))
    command = [sys.executable, str(RUN), "--known", str(known), "--results", str(tmp_path), *tests]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.runs
def test_smddp_passes_what_gloo_passes(tmp_path: Path) -> None:
    ended = _run(tmp_path, SLICE, [])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # Gloo sometimes fails a test on a busy machine: smddp then does not run it.
    counted = re.search(r"gloo: (\d+) passed of 12, 0 skipped; smddp: (\d+) passed, 0 listed", ended.stdout)
    assert counted is not None, ended.stdout
    assert counted[1] == counted[2]
    assert int(counted[1]) > len(SLICE) // 2


@pytest.mark.runs
def test_failures_must_be_listed_and_successes_not(tmp_path: Path) -> None:
    ended = _run(tmp_path, [BY_NAME, "test_get_rank"], ["test_get_rank"])
    assert ended.returncode == 1
    assert f"WRONG  {BY_NAME} failed: AssertionError" in ended.stdout, ended
    assert "WRONG  test_get_rank: passes, but is listed: for this test" in ended.stdout, ended
    assert "smddp: 1 passed, 0 listed with a reason, 2 wrong" in ended.stdout, ended
