"""Ten jobs at once by ten clients; `make test-soak` starts a hundred."""

from __future__ import annotations

import pytest

from tests.support.services.cloud import Cloud
from tests.support.services.concurrent_jobs import assert_each_ran_once, run_concurrently


@pytest.mark.runs
def test_jobs_started_at_once_each_run_once(cloud: Cloud) -> None:
    names = [f"concurrent-{number}" for number in range(10)]
    assert run_concurrently(cloud, names, clients=10) == dict.fromkeys(names, "Completed")
    assert_each_ran_once(cloud, names)
