"""Fixtures for servers on folders of their own, and checks that tests leave no processes or files behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from smdp_launch.localcloud.client.connect import private
from tests.support.services.cloud import BUCKET, Cloud, names_in, processes_with
from tests.support.waiting import DEADLINE, wait_for


def open_cloud_on(state_dir: Path, stack: ExitStack) -> Cloud:
    cloud = Cloud(stack.enter_context(private(state_dir, timeout=DEADLINE)))
    cloud.s3.create_bucket(Bucket=BUCKET)
    return cloud


@pytest.fixture(scope="module")
def shared_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One server for all tests of a file."""
    state_dir = tmp_path_factory.mktemp("shared") / "state"
    with ExitStack() as stack:
        yield open_cloud_on(state_dir, stack)
    assert_nothing_runs(str(state_dir))


@pytest.fixture(scope="module", params=["namespaces", pytest.param("tree", marks=pytest.mark.runs)])
def both_clouds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A server whose simulated hosts have namespaces, and one whose hosts are only folders."""
    state_dir = tmp_path_factory.mktemp(request.param) / "state"
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:
            if request.param == "tree":
                environment.setenv("SMDP_LOCAL_ISOLATION", "tree")
            cloud = open_cloud_on(state_dir, stack)
        cloud.level = request.param
        yield cloud
    assert_nothing_runs(str(state_dir))


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Iterator[Cloud]:
    with leaves_nothing(shared_cloud):
        yield shared_cloud


@pytest.fixture
def either_cloud(both_clouds: Cloud) -> Iterator[Cloud]:
    with leaves_nothing(both_clouds):
        yield both_clouds


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    assert_nothing_runs(str(tmp_path / "state"))


@pytest.fixture
def open_cloud(state_dir: Path) -> Iterator[Callable[[], Cloud]]:
    """Opens a client of the test's own server until the test ends. Starts the server if it does not run."""
    before = names_in("/tmp")
    opened: list[Cloud] = []
    with ExitStack() as stack:

        def open_one() -> Cloud:
            opened.append(open_cloud_on(state_dir, stack))
            return opened[-1]

        yield open_one
        wait_for(lambda: not list(state_dir.glob("jobs/*/hosts")), "the removal of the host trees")
    for cloud in opened:
        assert_nothing_runs(cloud.endpoint.access_key)
    assert_no_new_temporary_files(before)


class leaves_nothing:  # noqa: N801 (used as a context manager)
    """Checks that after a job only the server's process is left, and no host tree or temporary file."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def __enter__(self) -> None:
        self._before = names_in("/tmp")

    def __exit__(self, *error: object) -> None:
        wait_for(lambda: not list(self._cloud.state_dir.glob("jobs/*/hosts")), "the removal of the host trees")
        assert_nothing_runs(str(self._cloud.state_dir / "jobs"))
        assert_nothing_runs(self._cloud.endpoint.access_key)
        assert list((self._cloud.state_dir / "spool").iterdir()) == []
        assert_no_new_temporary_files(self._before)


def assert_nothing_runs(mark: str) -> None:
    wait_for(lambda: not processes_with(mark), f"the end of the processes of {mark}")


def assert_no_new_temporary_files(before: set[str]) -> None:
    """Trials of namespaces may run at any time, also in other tests; each must remove its folder."""
    wait_for(
        lambda: not [name for name in names_in("/tmp") - before if name.startswith("smdp-trial-")],
        "the removal of temporary folders",
    )
