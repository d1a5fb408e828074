"""Servers for the tests of endpoints, and checks that endpoints leave no processes or files behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.localcloud.conftest import assert_nothing_runs, open_cloud_on
from tests.support.services.serving import Serving
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all tests of a file. Each test deletes its endpoints, or leaves them to the server's end."""
    state_dir = tmp_path_factory.mktemp("serving") / "state"
    with ExitStack() as stack:
        yield Serving(open_cloud_on(state_dir, stack))
    assert_nothing_runs(str(state_dir))
    wait_for(lambda: not list(state_dir.glob("endpoints/*/hosts")), "the removal of the hosts' trees")
    assert list((state_dir / "spool").iterdir()) == []


@pytest.fixture(scope="module")
def doubling(serving: Serving) -> str:
    """An endpoint in service, for tests that change nothing of it."""
    return serving.deploy("doubling", hosts=2)
