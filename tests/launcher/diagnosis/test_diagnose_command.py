"""``diagnose --log``: its output on terminals, its JSON, its exit codes, and files that are no log of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from smdp_launch.errors import ExitCode
from tests.conftest import Command
from tests.support.json_documents import the_document
from tests.support.numbers.run_events import Step, log_lines, run_events
from tests.support.terminal import on_a_terminal, stable

RESOURCES = {
    "cores": 8,
    "cpu_s": 11.0,
    "workers_cpu_s": 9.0,
    "gpus": 2,
    "gpu_use": 0.5,
    "channel_train_mode": "FastFile",
}


def slow_rank(rank: int) -> Step:
    own = {"forward": 0.1} if rank == 2 else {"forward": 0.04, "exchange": 0.061}
    return {"input": 0.002, "backward": 0.06, "optimizer": 0.004, "exchange": 0.001, **own}


def slow_storage(_: int) -> Step:
    loader = {"load_batches": 1, "load_s": 0.3, "load_cpu_s": 0.03, "load_queued_s": 0.002, "load_bytes": 4e6}
    return {"input": 0.1, "forward": 0.02, "backward": 0.03, "exchange": 0.002, **loader, "load_workers": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rank.log").write_text("\n".join(["started", *log_lines(run_events(slow_rank, resources=RESOURCES))]))
    (tmp_path / "storage.log").write_text("\n".join(log_lines(run_events(slow_storage, resources=RESOURCES))))
    many = run_events(slow_rank, world_size=64, per_host=8)
    (tmp_path / "many.log").write_text("\n".join(log_lines(many)))
    return tmp_path


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("log", ["rank", "storage", "many"])
def test_output_matches_the_snapshot(folder: Path, log: str, columns: int, snapshot: SnapshotAssertion) -> None:
    text = stable(on_a_terminal(folder, ["diagnose", "--log", f"{log}.log"], columns, NO_COLOR="1"))
    assert text == snapshot
    assert all(len(line) <= columns for line in text.splitlines())


@pytest.mark.parametrize(("log", "cause", "code"), [("rank", "slow_worker", 24), ("storage", "source", 20)])
def test_json_and_exit_code_name_the_cause(smdp_launch: Command, folder: Path, log: str, cause: str, code: int) -> None:
    ran = smdp_launch("diagnose", "--log", str(folder / f"{log}.log"), "--json", "--exit-code")
    assert ran.returncode == code
    document = the_document(ran, "diagnose")
    assert document["cause"] == cause
    assert len(document["workers"]) == 4


def test_cause_needs_the_option_for_an_exit_code(smdp_launch: Command, folder: Path) -> None:
    ran = smdp_launch("diagnose", "--log", str(folder / "rank.log"))
    assert (ran.returncode, ran.stderr) == (ExitCode.OK, "")
    assert ran.stdout.startswith("Bound by slow worker rank 2 on algo-2")


@pytest.mark.parametrize("form", ["2026-11-26T10:00:00.000Z {}", "algo-1/stream\t{}", "{}\r"])
def test_prefix_of_an_export_is_left_out(smdp_launch: Command, folder: Path, form: str) -> None:
    lines = (folder / "storage.log").read_text().splitlines()
    (folder / "export.log").write_text("\n".join(form.format(line) for line in lines))
    ran = smdp_launch("diagnose", "--log", str(folder / "export.log"), "--json")
    assert json.loads(ran.stdout)["cause"] == "source"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"no event\n", b'[algo-1:0] {"smdp_event": 1}\n'])
def test_file_without_events_gives_unknown(smdp_launch: Command, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.log").write_bytes(content)
    ran = smdp_launch("diagnose", "--log", str(tmp_path / "other.log"), "--json", "--exit-code")
    assert ran.returncode == 29
    assert the_document(ran, "diagnose")["cause"] == "unknown"


def test_missing_file_and_two_sources_are_errors(smdp_launch: Command, tmp_path: Path) -> None:
    missing = smdp_launch("diagnose", "--log", str(tmp_path / "nowhere.log"))
    assert missing.returncode == ExitCode.ENVIRONMENT
    assert "nowhere.log cannot be read" in missing.stderr
    assert smdp_launch("diagnose", "some-job", "--log", "x").returncode == ExitCode.USAGE
