"""A copy of a JobSpec with other values: its relative paths start from the same folders as those of the original."""

from __future__ import annotations

from pathlib import Path

import pytest

import smdp_launch
from smdp_launch import JobSpec, Plan
from tests.conftest import JOB, write_job

PRICES = "date: 2026-11-01\nsource: ours\nprices: {us-east-1: {ml.p4d.24xlarge: %s}}\n"
DEFAULTS = """\
script: {source: src}
budget: {prices: prices.yaml}
local: {channels: {train: data}}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job file in ``jobs``, whose project has the paths. Both folders have a source, a price table and data."""
    text = JOB.replace("  source: src\n", "").replace("local: {channels: {train: data}}\n", "")
    for folder, price in ((tmp_path, 3600), (tmp_path / "jobs", 36)):
        folder.mkdir(exist_ok=True)
        write_job(folder, text)
        (folder / "prices.yaml").write_text(PRICES % price)
    (tmp_path / "job.yaml").unlink()
    (tmp_path / ".git").mkdir()
    (tmp_path / "smdp-defaults.yaml").write_text(DEFAULTS)
    return tmp_path / "jobs" / "job.yaml"


def with_hosts(spec: JobSpec, hosts: int) -> JobSpec:
    return spec.model_copy(update={"compute": spec.compute.model_copy(update={"instance_count": hosts})})


def paths_of(plan: Plan) -> tuple[Path, float | None, dict[str, Path]]:
    """The source folder, a price of the table, and the local data."""
    assert plan.prices is not None
    data = {name: path.resolve() for name, path in plan.local.data.items()} if plan.local is not None else {}
    return plan.source.folder.resolve(), plan.prices.hourly("us-east-1", "ml.p4d.24xlarge"), data


def test_copy_reads_the_files_of_the_original(job: Path) -> None:
    project = job.parent.parent
    expected = (project / "src", 3600, {"train": project / "data"})
    spec = smdp_launch.load(job)
    planned = smdp_launch.plan(spec, local=True)
    assert paths_of(planned) == expected
    copied = smdp_launch.plan(with_hosts(spec, 4), local=True)
    assert paths_of(copied) == expected
    copy_of_copy = smdp_launch.plan(with_hosts(copied.spec, 8), local=True)
    assert paths_of(copy_of_copy) == expected


def test_copy_keeps_the_folder_of_a_setting(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.parent.parent)
    spec = smdp_launch.load(job, settings=["script.source=src"])
    assert smdp_launch.plan(spec).source.folder == Path("src")
    assert smdp_launch.plan(with_hosts(spec, 4)).source.folder == Path("src")


def test_changed_path_of_a_copy_starts_from_the_folder_of_the_job(job: Path) -> None:
    (job.parent / "other").mkdir()
    (job.parent / "other" / "train.py").touch()
    spec = smdp_launch.load(job)
    copied = spec.model_copy(update={"script": spec.script.model_copy(update={"source": "other"})})
    assert smdp_launch.plan(copied).source.folder.resolve() == job.parent / "other"
