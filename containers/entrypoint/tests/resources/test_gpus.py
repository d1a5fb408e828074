"""GPUs, through a small library with the functions of NVIDIA's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from entrypoint_support.host import Host
from entrypoint_support.machine import Machine

from smdp_entrypoint.resources.gpus import Gpus

SOURCE = """
static int devices[3] = {0, 1, 2};
int nvmlInit_v2(void) { return INIT; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &devices[index]; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    int index = *(int *)device;
    rates[0] = 40 + 20 * index;
    rates[1] = 99;
    return index < REPORTING ? 0 : 3;  /* not supported */
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    int index = *(int *)device;
    memory[0] = 80000000000ull;
    memory[1] = 1;
    memory[2] = 5000000000ull + index;
    return index < REPORTING ? 0 : 15;  /* the GPU is lost */
}
"""


def library(folder: Path, init: int = 0, reporting: int = 2) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "nvml.c").write_text(SOURCE)
    target = folder / "libnvidia-ml.so.1"
    flags = [f"-DINIT={init}", f"-DREPORTING={reporting}", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(target), str(folder / "nvml.c")], check=True)
    return str(target)


def test_use_is_the_mean_and_memory_the_sum_of_the_gpus_that_report(tmp_path: Path) -> None:
    gpus = Gpus.open(library(tmp_path))
    assert gpus is not None
    fields = Machine(tmp_path / "root").sampler(gpus=gpus).sample()
    assert (fields["gpus"], fields["gpu_use"]) == (3, 0.5)
    assert (fields["gpu_memory_used"], fields["gpu_memory_total"]) == (10_000_000_001, 160_000_000_000)


def test_gpus_that_report_nothing_are_only_counted(tmp_path: Path) -> None:
    fields = Machine(tmp_path / "root").sampler(gpus=Gpus.open(library(tmp_path, reporting=0))).sample()
    assert {name for name in fields if "gpu" in name} == {"gpus"}


def test_a_library_that_does_not_start_gives_no_gpus(tmp_path: Path) -> None:
    assert Gpus.open(library(tmp_path, init=9)) is None


def test_an_absent_or_other_library_gives_no_gpus(tmp_path: Path) -> None:
    assert Gpus.open("libnvidia-ml-absent.so.1") is None
    assert Gpus.open("libc.so.6") is None
    (tmp_path / "text.so").write_text("not a library")
    assert Gpus.open(str(tmp_path / "text.so")) is None


def test_the_entrypoint_finds_the_library_as_the_loader_does(host: Host, tmp_path: Path) -> None:
    library(tmp_path)
    host.job("print('ok')")
    assert host.run(LD_LIBRARY_PATH=str(tmp_path)) == 0
    (last,) = host.events("resources")
    assert (last["gpus"], last["gpu_use"]) == (3, 0.5)
