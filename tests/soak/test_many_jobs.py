"""A hundred jobs started at once by ten clients: each completes and runs once, and the server's memory is constant."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from smdp_launch.localcloud.client import shared
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.concurrent_jobs import Memory, assert_each_ran_once, resident, run_concurrently

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
ROUNDS, JOBS, CLIENTS = 3, 100, 10
#: KiB of server memory for each ended job: entries in a few tables, neither a log nor a model.
KEPT = 40


def test_hundred_concurrent_jobs_complete(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    cloud = Cloud(shared.up(state_dir))
    cloud.s3.create_bucket(Bucket=BUCKET)
    after = []
    try:
        for number in range(ROUNDS):
            names = [f"concurrent-{number}-{job}" for job in range(JOBS)]
            began = time.monotonic()
            with Memory(cloud.endpoint.pid) as memory:
                assert run_concurrently(cloud, names, CLIENTS) == dict.fromkeys(names, "Completed")
            assert_each_ran_once(cloud, names)
            after.append(resident(cloud.endpoint.pid))
            took = time.monotonic() - began
            memory_used = f"highest {max(memory.samples)} KiB, afterwards {after[-1]} KiB"
            print(f"\nround {number}: {JOBS} jobs by {CLIENTS} clients in {took:.0f} s; server: {memory_used}")
    finally:
        shared.down(state_dir, grace=0)
    assert_nothing_runs(str(state_dir))
    slope = (after[-1] - after[0]) / ((ROUNDS - 1) * JOBS)
    print(f"memory: {slope:.1f} KiB a job from the first round to the last")
    assert slope < KEPT
