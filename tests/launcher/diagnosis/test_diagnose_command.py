"""``diagnose --log``: its output on terminals, its JSON, its exit codes, and files that are no log of a run."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from smdp_launch.diagnosis.report import diagnosis_json
from smdp_launch.diagnosis.saved_log import read_log
from smdp_launch.diagnosis.verdict import diagnose
from smdp_launch.errors import ExitCode
from smdp_launch.run_metrics.lines import metrics_line
from tests.conftest import Command
from tests.support.json_documents import the_document
from tests.support.numbers.run_events import HANG, Event, Step, log_lines, metrics_of, run_events
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


def as_csv(lines: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([["timestamp", "message"], *[["2026-12-01T00:00:36.693Z", one] for one in lines]])
    return out.getvalue()


def as_aws_json(lines: list[str], indent: int | None = 4) -> str:
    return json.dumps({"events": [{"timestamp": 1, "message": one} for one in lines]}, indent=indent)


def as_logs(lines: list[str]) -> str:
    """As `logs --json`."""
    parts = [re.fullmatch(r"\[([^:\]]+):?(\d*)\] (.*)", one) for one in lines]
    written = [{"host": one[1], "rank": int(one[2]) if one[2] else None, "text": one[3]} for one in parts if one]
    return json.dumps({"logs": 1, "lines": []})[:-2] + "\n" + ",\n".join(map(json.dumps, written)) + "\n]}\n"


def as_metrics(events: list[Event]) -> str:
    lines = (metrics_line("j", name, fields, host, rank, at) for name, fields, host, rank, at in events)
    return "".join(f"{json.dumps(one)}\n" for one in lines)


FORMS: dict[str, Callable[[list[Event]], str]] = {
    "csv": lambda events: as_csv(["no event", *log_lines(events)]),
    "aws json": lambda events: as_aws_json(log_lines(events)),
    "aws json in a line": lambda events: as_aws_json(log_lines(events), None),
    "messages": lambda events: json.dumps(log_lines(events), indent=4),
    "aws text": lambda events: "".join(f"EVENTS\t38\t1796\tj/algo-1\t{one}\t1796\n" for one in log_lines(events)),
    "logs": lambda events: as_logs(log_lines(events)),
    "metrics": as_metrics,
}


@pytest.mark.parametrize("form", FORMS)
def test_export_of_another_form_is_read(tmp_path: Path, form: str) -> None:
    events = run_events(slow_rank, resources=RESOURCES)
    data = FORMS[form](events).encode()
    wanted = diagnosis_json(diagnose(metrics_of(events)), None)
    for content in (data, gzip.compress(data), codecs.BOM_UTF8 + data):
        assert diagnosis_json(diagnose(read_log(io.BufferedReader(io.BytesIO(content)))), None) == wanted


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"no event\n", b'[algo-1:0] {"smdp_event": 1}\n', b"[[" * 100_000]
)
def test_file_without_events_is_refused(smdp_launch: Command, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.log").write_bytes(content)
    ran = smdp_launch("diagnose", "--log", str(tmp_path / "other.log"))
    assert (ran.returncode, ran.stdout) == (ExitCode.REFUSED, "")
    assert "other.log has no event of a job. `diagnose --log` reads these forms: text, CSV and JSON" in ran.stderr


def test_empty_file_gives_unknown(smdp_launch: Command, tmp_path: Path) -> None:
    (tmp_path / "other.log").write_bytes(b"\n")
    ran = smdp_launch("diagnose", "--log", str(tmp_path / "other.log"), "--json", "--exit-code")
    assert ran.returncode == 29
    assert the_document(ran, "diagnose")["cause"] == "unknown"


def test_damaged_file_is_an_error(smdp_launch: Command, tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"x" * 1000)[:-8])
    ran = smdp_launch("diagnose", "--log", str(tmp_path / "cut.gz"))
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "cut.gz cannot be read: Compressed file ended" in ran.stderr


def test_hang_comes_first(smdp_launch: Command, tmp_path: Path) -> None:
    (tmp_path / "hang.log").write_text("\n".join(log_lines([*run_events(slow_rank), *HANG])))
    ran = smdp_launch("diagnose", "--log", str(tmp_path / "hang.log"), "--exit-code")
    first, *lines = ran.stdout.splitlines()
    assert ran.returncode == 30
    assert first.startswith("The job hangs: no progress since 2026-09-21 14:14:10 UTC, rank 2 on algo-2 is in forward")
    assert any(line.startswith("step  ") and "before the hang" in line for line in lines)
    assert lines.index("What to do first") == len(lines) - 3
    document = the_document(smdp_launch("diagnose", "--log", str(tmp_path / "hang.log"), "--json"), "diagnose")
    assert (document["cause"], document["sentence"], document["ranks"], document["share"]) == ("hang", first, [2], None)
    assert [one["rank"] for one in document["workers"]] == [0, 1, 2, 3]


def test_missing_file_and_two_sources_are_errors(smdp_launch: Command, tmp_path: Path) -> None:
    missing = smdp_launch("diagnose", "--log", str(tmp_path / "nowhere.log"))
    assert missing.returncode == ExitCode.ENVIRONMENT
    assert "nowhere.log cannot be read" in missing.stderr
    assert smdp_launch("diagnose", "some-job", "--log", "x").returncode == ExitCode.USAGE
