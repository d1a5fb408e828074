"""Ten jobs at once by ten clients; `make test-soak` starts a hundred."""

from __future__ import annotations

import pytest

from tests.support.services.cloud import Cloud
from tests.support.services.crowd import assert_each_ran_once, run_crowd


@pytest.mark.runs
def test_jobs_that_start_at_once_all_end_and_each_ran_once(cloud: Cloud) -> None:
    names = [f"crowd-{number}" for number in range(10)]
    assert run_crowd(cloud, names, clients=10) == dict.fromkeys(names, "Completed")
    assert_each_ran_once(cloud, names)
