"""How the measurements on a GPU read traces, listings and test results, and judge a figure by its limit."""

import math
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import List
from xml.etree import ElementTree

import copies
import figures
import job
import losses
import machine
import measure
import pytest
import sanitizer
import steps
from figures import FAILED, NO_LIMIT, NOT_RUN, PASSED, Figure


@pytest.mark.parametrize(
    ("figure", "result", "limit"),
    [
        (Figure("x", 2.0, "%", at_most=2.0), PASSED, "<= 2 %"),
        (Figure("x", 2.01, "%", at_most=2.0), FAILED, "<= 2 %"),
        (Figure("x", 0.9, at_least=0.9), PASSED, ">= 0.9"),
        (Figure("x", 0.89, at_least=0.9), FAILED, ">= 0.9"),
        (Figure("x", 0, at_least=1, at_most=1), FAILED, "1"),
        (Figure("x", math.nan, at_most=1), FAILED, "<= 1"),
        (Figure("x", 0.5), NO_LIMIT, ""),
        (figures.not_run("x", "no GPU"), NOT_RUN, ""),
    ],
)
def test_figure_passes_if_it_is_within_its_limit(figure: Figure, result: str, limit: str) -> None:
    assert (figure.result, figure.limit) == (result, limit)


def test_figures_are_the_same_after_they_are_written_and_read(tmp_path: Path) -> None:
    rows = [Figure("a", 1.5, "ms", at_most=2, note="n", details={"k": [1]}), figures.not_run("b", "why")]
    figures.write(tmp_path / "f.json", rows)
    assert figures.read(tmp_path / "f.json") == rows


def memcpy(name: str, size: int, microseconds: float) -> "dict[str, object]":
    """An event of torch's profiler (Kineto), as it writes copies of CUDA."""
    args = {"device": 0, "stream": 20, "correlation": 7, "bytes": size, "memory bandwidth (GB/s)": 1.0}
    return {"ph": "X", "cat": "gpu_memcpy", "name": name, "ts": 1.0, "dur": microseconds, "args": args}


def test_copies_are_counted_by_direction_and_pageable_ones_noted() -> None:
    trace = {
        "traceEvents": [
            memcpy("Memcpy DtoH (Device -> Pinned)", 4_000_000, 100.0),
            memcpy("Memcpy DtoH (Device -> Pageable)", 1_000_000, 100.0),
            memcpy("Memcpy HtoD (Pinned -> Device)", 4_000_000, 80.0),
            memcpy("Memcpy HtoD (Pageable -> Device)", 8, 1.0),
            memcpy("Memcpy DtoD (Device -> Device)", 4_000_000, 10.0),
            {"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "dur": 5.0, "args": {}},
        ]
    }
    found = copies.copies_of(trace, 1 << 16)
    to_host, to_device = found[copies.TO_HOST], found[copies.TO_DEVICE]
    assert (to_host.bytes, to_host.pageable, to_host.rate) == (5_000_000, 1_000_000, pytest.approx(25e9))
    assert (to_device.bytes, to_device.pageable, to_device.rate) == (4_000_000, 0, pytest.approx(50e9))


@pytest.mark.parametrize(("to_host_us", "result"), [(1000.0, PASSED), (1200.0, FAILED)])
def test_share_of_copies_is_judged(to_host_us: float, result: str) -> None:
    trace = {
        "traceEvents": [
            memcpy("Memcpy DtoH (Device -> Pinned)", 25_000_000, to_host_us),
            memcpy("Memcpy HtoD (Pinned -> Device)", 25_000_000, 1000.0),
        ]
    }
    alone = dict.fromkeys((copies.TO_HOST, copies.TO_DEVICE), 1.0)
    report = {"alone_ms": alone, "copies": copies.copies_of(trace, 1), "bytes": 25_000_000, "correct": True}
    rows = {one.name: one for one in copies.of_reports([report], "1 rank", True)}
    name = "copies of a bucket to the host, 1 rank: share of the rate of a pinned copy alone"
    assert rows[name].value == pytest.approx(1000 / to_host_us)
    assert rows[name].result == result


def test_bound_of_a_step_is_the_latest_end_of_computing_and_exchange() -> None:
    exchanged = [10.0, 20.0, 30.0]
    computes_longer = {"backward": 100.0, "optimizer": 5.0, "ready": [20.0, 50.0, 90.0]}
    assert steps.bound_ms(computes_longer, exchanged) == 90 + 10 + 5
    exchanges_longer = {"backward": 15.0, "optimizer": 5.0, "ready": [5.0, 8.0, 12.0]}
    assert steps.bound_ms(exchanges_longer, exchanged) == 5 + 30 + 5
    last_is_cached = {"backward": 100.0, "optimizer": 5.0, "ready": [1.0, 2.0, 3.0]}
    assert steps.bound_ms(last_is_cached, exchanged) == 105


def test_difference_of_losses_is_nan_if_a_loss_is_not_a_number() -> None:
    assert losses.largest_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert math.isnan(losses.largest_difference([1.0, math.nan, 1.0], [1.0, 2.0, 1.0]))


def test_sanitizer_without_summary_is_an_error() -> None:
    assert sanitizer.errors_in("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 2 errors\n") == 2
    assert sanitizer.errors_in("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n") == 1
    with pytest.raises(job.JobFailedError, match="wrote no summary"):
        sanitizer.errors_in("killed\n")


def test_mig_devices_are_listed() -> None:
    """The output of nvidia-smi -L with MIG, from NVIDIA's guide."""
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)\n"
        "  MIG 3g.40gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)\n"
    )
    assert [(one["kind"], one["name"].split()[0]) for one in machine.listed(text)] == [
        ("GPU", "NVIDIA"),
        ("MIG", "1g.10gb"),
        ("MIG", "3g.40gb"),
    ]


def junit(*cases: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")


def test_results_of_pytest_are_one_row() -> None:
    passed, failed = '<testcase name="a"/>', '<testcase name="b"><failure message="no"/></testcase>'
    skipped = '<testcase name="c"><skipped message="no GPU: torch 2"/></testcase>'
    (row,) = measure.of_tests(junit(passed, passed), "tests/gpu")
    assert (row.value, row.result) == (2, PASSED)
    (row,) = measure.of_tests(junit(passed, failed), "tests/gpu")
    assert (row.value, row.result, row.note) == (1, FAILED, "2 tests; failed: b")
    (row,) = measure.of_tests(junit(skipped, skipped), "tests/gpu")
    assert (row.result, row.note) == (NOT_RUN, "no GPU: torch 2")
    (row,) = measure.of_tests(junit(passed, skipped), "tests/gpu")
    assert (row.result, row.note) == (FAILED, "2 tests; 1 skipped: no GPU: torch 2")


def running(mark: str) -> List[str]:
    """The command lines of processes that have the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in text:
            found.append(text)
    return found


def test_ranks_that_do_not_exit_are_killed_and_reported() -> None:
    mark = f"mark_{uuid.uuid4().hex}"
    ended = job.ranks([1, 1], [sys.executable, "-c", f"import time; {mark} = time.sleep(600)"], limit_s=1)
    assert [(one.code, one.late, one.report) for one in ended] == [(-9, True, {})] * 2
    with pytest.raises(job.JobFailedError, match=r"^x: rank 0 had not exited after 1 s"):
        job.failed(ended, "x", 1)
    assert running(mark) == []


def test_report_of_a_rank_is_its_last_line_of_json() -> None:
    assert job.Rank(0, 0, '{"a": 1}\nwarning\n{"a": 2}\n[3]\nend\n', "", False).report == {"a": 2}
    assert job.Rank(0, 0, "end\n", "", False).report == {}


def test_ended_program_ends_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_GRACE_S", 600)
    mark = f"mark_{uuid.uuid4().hex}"
    program = tmp_path / "program.py"
    started = (
        f"import os, pathlib, time; {mark} = pathlib.Path('started' + os.environ['RANK']).touch(); time.sleep(600)"
    )
    program.write_text(
        f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path.insert(0, {str(job.HERE)!r})\nimport job\n"
        f"job.ranks([1, 1], [sys.executable, '-c', {started!r}], limit_s=600)\n"
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, str(program)], stderr=log)
    while len(list(tmp_path.glob("started*"))) < 2:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.05)
    assert len(running(mark)) == 2
    measure.end(process)
    assert running(mark) == []


def test_program_over_its_limit_is_ended(tmp_path: Path) -> None:
    mark = f"mark_{uuid.uuid4().hex}"
    with pytest.raises(subprocess.TimeoutExpired):
        measure.bounded([sys.executable, "-c", f"import time; {mark} = time.sleep(600)"], tmp_path / "log", 1)
    assert running(mark) == []


def test_rows_of_an_earlier_run_are_kept_on_the_same_machine_only(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    machine_found = {"device": "cuda", "gpus": [{"name": "H100"}], "torch": "2.13.0", "processor": "x"}
    assert measure.kept(path, machine_found, ["copies"]) == []
    rows = [*measure.of_program("copies", [Figure("a", 1)]), *measure.of_program("groups", [Figure("b", 2)])]
    figures.write(path, rows, machine=machine_found)
    assert [one.name for one in measure.kept(path, machine_found, ["copies"])] == ["b"]
    with pytest.raises(RuntimeError, match=r"is of another machine \(torch 2\.13\.0\): set another folder"):
        measure.kept(path, {**machine_found, "torch": "2.0.1"}, ["copies"])


def test_options_of_the_engine_reach_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other options: the command shows all of them."""
    monkeypatch.setenv("SMDP_COPY_THREADS", "3")
    monkeypatch.setattr(sys, "argv", ["x.py", "--set", "SMDP_LOCAL_REDUCER=gloo"])
    arguments = job.parsed(job.parser("x"))
    code = (
        "import json, os; print(json.dumps([os.environ.get(n) for n in ('SMDP_LOCAL_REDUCER', 'SMDP_COPY_THREADS')]))"
    )
    (ended,) = job.ranks([1], [sys.executable, "-c", code], limit_s=200, environment=job.options(arguments))
    assert ended.out == '["gloo", null]\n'


@pytest.mark.parametrize("text", ["LOCAL_REDUCER=gloo", "SMDP_LOCAL_REDUCER", ""])
def test_setting_that_is_no_option_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x.py", "--set", text])
    with pytest.raises(SystemExit):
        job.parsed(job.parser("x"))
    assert f"--set {text}: write SMDP_NAME=VALUE" in capsys.readouterr().err


def test_first_failed_rank_is_reported_before_late_ones() -> None:
    ended = [job.Rank(0, -9, "", "waits", True), job.Rank(1, 1, "", "Traceback\nValueError: no", False)]
    with pytest.raises(job.JobFailedError, match=r"^losses: rank 1 exited with 1:\nTraceback\nValueError: no$"):
        job.failed(ended, "losses", 10)
