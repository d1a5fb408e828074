"""No rule refuses a job because of a cell of the instance table without a source."""

from __future__ import annotations

import copy
import datetime
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog import instances as catalog
from smdp_launch.catalog.instances import Instance, instance, instances, source_of
from smdp_launch.catalog.tables import table
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Severity
from tests.conftest import JOB, write_job

FACTS = [one for one in Instance._fields if one not in ("name", "from_memory", "sources")]
#: Cells that may be empty: the others have a value in every row.
MAY_BE_EMPTY = ("fabric", "local_nvme_gb", "cuda_min", "cuda_end", "gpudirect_rdma")

#: Jobs that are refused, or not, because of one fact: the type, and what is added to the job file.
REFUSED = {
    "compute_capability": ("ml.p3dn.24xlarge", "amp: bf16\n"),
    "cuda_min": ("ml.p6-b200.48xlarge", ""),
    "gpu_memory_gb": ("ml.g5.12xlarge", "model: {parameters: 7000000000, optimizer: adamw}\n"),
    "local_nvme_gb": ("ml.p4d.24xlarge", "encryption: {volume_key: alias/volumes}\n"),
}
EVERYTHING = """\
environment: {NCCL_PROTO: simple, NCCL_P2P_DISABLE: "1", FI_EFA_USE_DEVICE_RDMA: "1", FI_PROVIDER: tcp}
batch: {global: 4096}
model: {parameters: 7000000000, optimizer: adamw}
encryption: {volume_key: alias/volumes}
amp: bf16
"""


def refusals(folder: Path, type_: str, more: str) -> list[str]:
    text = JOB.replace("engine: native", "engine: nccl").replace("ml.p4d.24xlarge", type_)
    found = check_job(write_job(folder, f"{text}{more}")).diagnostics
    return [one.code for one in found if one.severity is Severity.ERROR]


def without(monkeypatch: pytest.MonkeyPatch, field: str, *, empty: bool) -> None:
    """Every row without a source for ``field``: marked, or empty."""
    changed: dict[str, Any] = copy.deepcopy(table("instances"))
    for row in changed["instances"].values():
        row["from_memory"] = [*row["from_memory"], field]
        if empty:
            row[field] = None
    monkeypatch.setattr(catalog, "table", lambda name: changed if name == "instances" else table(name))


@pytest.mark.parametrize("one", instances(), ids=lambda one: one.name)
def test_every_cell_has_a_source_and_a_date_or_is_marked(one: Instance) -> None:
    for field in FACTS:
        value, source = getattr(one, field), source_of(one, field)
        if value is None:
            assert field in MAY_BE_EMPTY
            assert source is None
        elif field not in one.from_memory:
            assert source is not None, field
            assert source.source
            datetime.date.fromisoformat(source.checked)


@pytest.mark.parametrize("one", [one for one in instances() if one.name.startswith("ml.p3")], ids=lambda one: one.name)
def test_every_cell_of_p3_has_a_source(one: Instance) -> None:
    """A single GPU is connected to no other."""
    without = [field for field in FACTS if source_of(one, field) is None]
    assert without == (["fabric"] if one.gpus == 1 else [])


@pytest.mark.parametrize("field", REFUSED)
def test_documented_cell_refuses_a_job(field: str, tmp_path: Path) -> None:
    """The cases of the next test are refused while the cell has its source."""
    assert refusals(tmp_path, *REFUSED[field]) != []


@pytest.mark.parametrize("field", REFUSED)
def test_cell_without_source_refuses_no_job(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, field, empty=False)
    assert refusals(tmp_path, *REFUSED[field]) == []


@pytest.mark.parametrize("field", MAY_BE_EMPTY)
@pytest.mark.parametrize("type_", ["ml.p3.16xlarge", "ml.p4d.24xlarge", "ml.p5.48xlarge", "ml.g5.xlarge"])
def test_empty_cell_adds_no_error(field: str, type_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = refusals(tmp_path, type_, EVERYTHING)
    without(monkeypatch, field, empty=True)
    assert set(refusals(tmp_path, type_, EVERYTHING)) <= set(before)


def test_small_types_have_one_gpu() -> None:
    small = instance("ml.g5.xlarge")
    assert small is not None
    assert (small.gpus, small.gpu, small.gpu_memory_gb, small.fabric) == (1, "A10G", 24, None)
