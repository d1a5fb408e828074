"""Output on terminals of 80 and 140 columns, with and without colours."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pexpect
import pytest
from syrupy.assertion import SnapshotAssertion

from tests.conftest import JOB, clean_environment, write_job
from tests.support.job_files.five_errors import FIVE_ERRORS
from tests.support.terminal import on_a_terminal, stable

SCRIPT = """\
import argparse, os
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3, help="passes over the data")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--train", default=os.environ.get("SM_CHANNEL_TRAIN"))
dist.init_process_group("smddp")
if dist.get_rank() == 0:
    torch.save({}, os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
"""
FLOW = (
    "compute: {max_run: 600, volume_gb: 100, max_pending: 7200, instance_count: 2, instance_type: ml.p3.24xlarge, "
    "keep_alive: 600}\n"
)
VIEWS = {
    "validate": ["validate", "invalid.yaml"],
    "plan": ["plan"],
    "origins": ["plan", "--origins"],
    "dry-run": ["launch", "--dry-run"],
    "instances": ["catalog", "instances"],
    "frameworks": ["catalog", "frameworks", "--engine", "smdistributed"],
    "images": ["catalog", "images", "--region", "us-east-1", "--version", "2.0.1"],
    "explain": ["explain", "SMDP301"],
    "init": ["init", "scripts", "--output", "drafted.yaml"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a job file, an invalid job file and a script to draft from."""
    write_job(tmp_path)
    (tmp_path / "invalid.yaml").write_text(FIVE_ERRORS)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(SCRIPT)
    return tmp_path


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("colour", ["colour", "plain"])
@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("view", VIEWS)
def test_output_matches_the_snapshot(
    folder: Path, view: str, columns: int, colour: str, snapshot: SnapshotAssertion
) -> None:
    environment = {"NO_COLOR": "1"} if colour == "plain" else {"COLORTERM": "truecolor"}
    assert stable(on_a_terminal(folder, VIEWS[view], columns, **environment)) == snapshot


@pytest.mark.parametrize("view", VIEWS)
def test_only_uris_are_wider_than_eighty_columns(folder: Path, view: str) -> None:
    lines = plain(on_a_terminal(folder, VIEWS[view], 80)).splitlines()
    long = [line for line in lines if len(line.rstrip()) > 80]
    assert [line for line in long if " " in line.strip()] == []
    assert [line for line in long if "amazonaws.com/" not in line] == []


def test_draft_matches_the_snapshot_and_fits_eighty_columns(folder: Path, snapshot: SnapshotAssertion) -> None:
    on_a_terminal(folder, VIEWS["init"])
    draft = (folder / "drafted.yaml").read_text()
    assert draft == snapshot
    assert [line.partition(":")[0] for line in draft.splitlines() if len(line) > 80] == ["image"]


def test_marks_are_below_the_error_in_a_long_line(folder: Path) -> None:
    start, end = JOB.index("compute:"), JOB.index("channels:")
    (folder / "job.yaml").write_text(JOB[:start] + FLOW + JOB[end:])
    lines = plain(on_a_terminal(folder, ["validate"], 80)).splitlines()
    (at,) = [index for index, line in enumerate(lines) if "^" in line]
    marks = re.search(r"\^+", lines[at])
    assert marks is not None
    assert lines[at - 1][marks.start() : marks.end()] == "ml.p3.24xlarge"
    assert len(lines[at - 1]) <= 80


def test_long_messages_are_wrapped_between_words(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB + "batch: {global: 16, per_gpu: 1}\n")
    lines = plain(on_a_terminal(folder, ["validate"], 80)).splitlines()
    assert lines[0].startswith("error[SMDP507]: batch sets both `global` and `per_gpu`; each follows")
    assert re.match(r"  [a-z]", lines[1])
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(("seconds", "is_shown"), [(0.0, False), (1.0, True)])
def test_spinner_appears_only_for_long_work(tmp_path: Path, seconds: float, is_shown: bool) -> None:
    program = (
        "import time; from smdp_launch.cli.render.terminal import bars; bars.QUIET = 0.2\n"
        f"with bars.busy('checking job.yaml'): time.sleep({seconds})\nprint('done')"
    )
    environment = clean_environment(TERM="xterm-256color")
    ran = pexpect.spawn(sys.executable, ["-c", program], cwd=tmp_path, env=environment, encoding="utf-8", timeout=60)
    ran.expect_exact("done")
    assert ("checking job.yaml" in str(ran.before)) == is_shown
    ran.close()
