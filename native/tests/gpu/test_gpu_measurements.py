"""The programs that measure on a GPU run from their first line to their last on the emulation of a GPU.

Figures that are times or bytes of a GPU have no verdict here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import figures
import pytest
from torch_version import needs_torch

pytestmark = [pytest.mark.torch, needs_torch, pytest.mark.timeout(1200)]

PROGRAMS = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
PASSED, NOT_RUN, NO_LIMIT = figures.PASSED, figures.NOT_RUN, figures.NO_LIMIT
TIMED = "a time"
#: The results of the rows of each program.
ROWS: Dict[str, Dict[str, str]] = {
    "copies": {
        "copies of a bucket to the host, 1 rank, 1 MiB: share of the rate of a pinned copy alone": NOT_RUN,
        "copies of a bucket to the GPU, 1 rank, 1 MiB: share of the rate of a pinned copy alone": NOT_RUN,
        "ranks with a wrong sum, 1 rank, 1 MiB": PASSED,
        "copies of a bucket to the host, 2 hosts on one bus, 1 MiB: share of the rate of a pinned copy alone": NOT_RUN,
        "copies of a bucket to the GPU, 2 hosts on one bus, 1 MiB: share of the rate of a pinned copy alone": NOT_RUN,
        "ranks with a wrong sum, 2 hosts on one bus, 1 MiB": PASSED,
    },
    "within": {
        "elements with a wrong sum, smddp within the host, 2+2 ranks, 4 buckets of 1 MiB": PASSED,
        "time of sums, smddp within the host / shm, 2+2 ranks, 4 buckets of 1 MiB": NO_LIMIT,
        "time of sums, nccl within the host / shm": NOT_RUN,
    },
    "beside": {
        "matrix products slowed by an exchange": TIMED,
        "share of the products that was beside the exchange": TIMED,
    },
    "groups": {
        "bytes of tensors on the GPU after 20 groups": PASSED,
        "bytes that torch keeps on the GPU after 20 groups": PASSED,
        "bytes used on the whole GPU after 20 groups": NOT_RUN,
        "file descriptors left after 20 groups": PASSED,
        "threads left after 20 groups": PASSED,
        "time of a group: created, used, destroyed": NO_LIMIT,
    },
    "faults": {
        "fault: out of memory in a bucket: ends as stated (1: yes)": PASSED,
        "fault: a device error: ends as stated (1: yes)": NOT_RUN,
        "fault: a process killed with copies in flight: ends as stated (1: yes)": PASSED,
        "fault: a stream destroyed early: ends as stated (1: yes)": PASSED,
        "fault: two groups on one GPU: ends as stated (1: yes)": PASSED,
        "fault: CUDA_LAUNCH_BLOCKING: ends as stated (1: yes)": PASSED,
        "fault: a call while a graph is captured: ends as stated (1: yes)": NOT_RUN,
        "fault: another stream: ends as stated (1: yes)": PASSED,
    },
    "losses": {
        "transformer, fp32: difference of a loss from gloo": PASSED,
        "transformer, fp32: last loss / first loss": PASSED,
        "transformer, fp16: difference of a loss from gloo": PASSED,
        "transformer, fp16: last loss / first loss": PASSED,
        "transformer, bf16: difference of a loss from gloo": PASSED,
        "transformer, bf16: last loss / first loss": PASSED,
    },
    "steps": {
        "transformer, 1+1 ranks: step / bound": TIMED,
        "computing / exchange (wanted: 1)": NO_LIMIT,
        "transformer, 1+1 ranks: step / step with gloo": NO_LIMIT,
    },
    "mnist": {
        "MNIST template, fp32: difference of a loss from gloo": PASSED,
        "MNIST template, fp16: difference of a loss from gloo": PASSED,
        "MNIST template, bf16: difference of a loss from gloo": PASSED,
    },
}
#: The others run in `make test-runs`.
IN_MAKE_TEST = ("groups",)


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=() if name in IN_MAKE_TEST else pytest.mark.runs) for name in ROWS]
)
def test_program_measures_on_the_emulation(program: str, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), "--device", "emulated", "--small", "--json", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1000)
    assert path.exists(), ran.stderr
    found = figures.read(path)
    results = {one.name: one.result for one in found}
    for name, result in ROWS[program].items():
        if result == TIMED:
            assert results.pop(name) in (figures.PASSED, figures.FAILED), ran.stdout
        else:
            assert results.pop(name) == result, ran.stdout
    assert results == {}
    assert [line for line in ran.stdout.splitlines() if line.startswith(found[0].name)] == [found[0].line()]


def measure(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(PROGRAMS / "measure.py"), *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1000, env=environment)


def table_rows(text: str) -> List[List[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_table_states_why_nothing_ran_without_a_gpu(tmp_path: Path) -> None:
    ran = measure("--out", str(tmp_path))
    assert ran.returncode == 2, ran.stderr
    rows = table_rows(ran.stdout)
    assert len(rows) == 10
    assert {row[3] for row in rows} == {"not run"}
    assert all(row[4].startswith("no GPU: torch ") for row in rows), rows
    assert table_rows((tmp_path / "table.md").read_text()) == rows
    assert ran.stdout.splitlines()[-1].startswith("0 passed, 0 FAILED, 0 no limit, 10 not run; ")


@pytest.mark.runs
def test_programs_after_the_budget_are_not_started(tmp_path: Path) -> None:
    ran = measure(
        "--device", "emulated", "--small", "--only", "tests,groups", "--budget-s", "0", "--out", str(tmp_path)
    )
    assert ran.returncode == 2, ran.stderr
    assert [(row[3], row[4]) for row in table_rows(ran.stdout)] == [
        ("not run", "the tests need a GPU"),
        ("not run", "the budget of 0 s was spent"),
    ]


@pytest.mark.runs
def test_table_has_the_figures_of_the_programs_and_the_machine(tmp_path: Path) -> None:
    ran = measure("--device", "emulated", "--small", "--only", "groups,sanitizer", "--out", str(tmp_path), PATH="/bin")
    assert ran.returncode == 0, ran.stderr + ran.stdout
    rows = {row[0]: row for row in table_rows(ran.stdout)}
    assert rows["bytes of tensors on the GPU after 20 groups"][1:4] == ["0 B", "<= 0 B", "passed"]
    sanitizer = rows["errors that compute-sanitizer's memcheck reports"]
    assert sanitizer[3:] == ["not run", "compute-sanitizer is not installed (it is part of the CUDA toolkit)"]
    assert "The GPU is emulated on the CPU" in ran.stdout
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["machine"]["device"] == "emulated"
    assert len(written["figures"]) == len(rows)


@pytest.mark.runs
@pytest.mark.parametrize(("errors", "result"), [(0, "passed"), (3, "FAILED")])
def test_reports_of_the_sanitizer_are_counted(errors: int, result: str, tmp_path: Path) -> None:
    """A program in place of compute-sanitizer runs the ranks and writes its summary."""
    stand_in = tmp_path / "compute-sanitizer"
    script = f'while [ "$1" != "{sys.executable}" ]; do shift; done\n"$@" || exit 9\n'
    stand_in.write_text(f'#!/bin/sh\n{script}echo "========= ERROR SUMMARY: {errors} errors"\n')
    stand_in.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = measure("--device", "emulated", "--only", "sanitizer", "--out", str(tmp_path / "out"), PATH=path)
    rows = table_rows(ran.stdout)
    assert [(row[1], row[3]) for row in rows] == [(str(2 * errors), result)] * 2, ran.stderr
