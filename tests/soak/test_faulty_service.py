"""Two hundred jobs through a service of which three calls in ten fail: each is launched, followed and stopped once."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.support.services.faulty_service import cloud_with_data, run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
SEEDS = int(os.environ.get("SMDP_SOAK_SEEDS", "200"))
FIRST = int(os.environ.get("SMDP_SOAK_SEED", "10000"))


def test_every_seed_launches_and_stops_once(tmp_path: Path) -> None:
    endings: Counter[str] = Counter()
    faults = 0
    with cloud_with_data(tmp_path / "state") as cloud:
        for seed in range(FIRST, FIRST + SEEDS):
            result = run(cloud, tmp_path / str(seed), seed)
            assert result.outcome.exit_code is (ExitCode.JOB_STOPPED if seed % 2 else ExitCode.OK), seed
            endings[result.outcome.summary] += 1
            faults += result.faults
    print(f"\nseeds {FIRST} to {FIRST + SEEDS - 1}, {faults} calls broken: {dict(endings)}")
