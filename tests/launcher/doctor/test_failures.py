"""What the end of a failed local run says about this machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smdp_launch.doctor.failures import environment_causes
from smdp_launch.planning.plan import LocalRun, Plan
from tests.conftest import write_job
from tests.support.jobs.plans import plan_of

TRAINER = """AlgorithmError: ZeroDivisionError: integer modulo by zero (rank 0 on algo-1)
  File "accelerate/state.py", line 843, in set_device
    device_index = self.local_process_index % device_module.device_count()
                   ~~~~~~~~~~~~~~~~~~~~~~~~~^~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
ZeroDivisionError: integer modulo by zero"""


def planned(folder: Path, **options: Any) -> Plan:
    return plan_of(write_job(folder), LocalRun(1, 1, {}, (), **options))


@pytest.mark.parametrize(
    "reason",
    [
        TRAINER,
        "AlgorithmError: RuntimeError: No CUDA GPUs are available (rank 0 on algo-1)",
        "RuntimeError: Found no NVIDIA driver on your system.",
        "AssertionError: Torch not compiled with CUDA enabled",
    ],
)
def test_script_without_a_gpu_gets_the_option_that_emulates_one(tmp_path: Path, reason: str) -> None:
    (cause,) = environment_causes(planned(tmp_path), reason, tmp_path)
    assert "--cuda-on-cpu" in cause
    assert list(environment_causes(planned(tmp_path, cuda_on_cpu=True), reason, tmp_path)) == []


def test_other_division_by_zero_has_no_cause(tmp_path: Path) -> None:
    reason = "AlgorithmError: ZeroDivisionError: integer modulo by zero (rank 0 on algo-1)"
    assert list(environment_causes(planned(tmp_path), reason, tmp_path)) == []


def test_cut_file_of_torch_names_the_folder_to_check(tmp_path: Path) -> None:
    reason = "RuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"
    (cause,) = environment_causes(planned(tmp_path), reason, tmp_path)
    assert f"df -h {tmp_path}" in cause


def test_failed_run_on_a_full_disk_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    (cause,) = environment_causes(planned(tmp_path), "AlgorithmError: ", tmp_path)
    assert cause.startswith(f"disk full in {tmp_path}")
