"""Files of other versions are read, or refused with a sentence that says what to do.

``folders/DAY.tar.gz`` is a folder that the smdp-launch of that day has written: a job file, a plan, the history of a
local job and of a rehearsal, and the local cloud's state. The plan of the first day is of version 1.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.event_lines import EVENT_VERSION, Line, event_of
from smdp_launch.jobfile.model.spec import SCHEMA_VERSION
from smdp_launch.jobs.records.history import STATE_VERSION, ends, launches, record_launch
from smdp_launch.jobs.records.lines import End, Launch
from smdp_launch.localcloud.client.connect import private
from smdp_launch.localcloud.layout import VERSION as LOCAL_CLOUD_VERSION
from smdp_launch.planning.past_rehearsals import REHEARSAL_VERSION
from smdp_launch.planning.plan import PLAN_VERSION
from smdp_launch.testing import local_cloud
from tests.conftest import ROOT, Command, command_in
from tests.support.jobs.plans import NOW

DATA = Path(__file__).with_name("folders")
FIRST, LAST = "2026-11-23", "2026-11-25"
each_day = pytest.mark.parametrize("day", [pytest.param(FIRST, marks=pytest.mark.runs), LAST])
OLDER = "an older smdp-launch has written plan.json"
UPGRADE = "upgrade it (`pip install --upgrade --find-links FOLDER smdp-launch`, with the folder of its wheels)"


def unpacked(day: str, folder: Path) -> Path:
    with tarfile.open(DATA / f"{day}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / ".smdp").chmod(0o700)
    change(folder / "plan.json", lambda plan: plan["source"].update(folder=str(folder / "src")))
    return folder


def change(path: Path, edit: Callable[[Any], object]) -> None:
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


@pytest.fixture
def day() -> str:
    return LAST


@pytest.fixture
def before(tmp_path: Path, day: str) -> Path:
    """A folder of the other version."""
    return unpacked(day, tmp_path)


@pytest.fixture
def smdp(before: Path) -> Command:
    return command_in(before)


def jobs_of(folder: Path) -> list[str]:
    lines = [json.loads(line) for line in (folder / ".smdp" / "history.jsonl").read_text().splitlines()]
    return [one["job"] for one in lines if "where" in one]


@each_day
def test_local_jobs_of_before_are_shown(before: Path, smdp: Command) -> None:
    trained, rehearsed = jobs_of(before)
    with private(before / ".smdp" / "local"):  # otherwise each command starts one
        _check_shown(smdp, trained, rehearsed)


def _check_shown(smdp: Command, trained: str, rehearsed: str) -> None:
    listed = json.loads(smdp("list", "--json").stdout)["jobs"]
    assert [(one["job"], one["training_job_status"]) for one in listed] == [
        (rehearsed, "Completed"),
        (trained, "Completed"),
    ]
    assert json.loads(smdp("status", trained, "--json").stdout)["training_job_status"] == "Completed"
    assert smdp("logs", trained).stdout.count(" | trained") == 2
    assert smdp("follow", trained).returncode == ExitCode.OK


@each_day
def test_the_plan_lists_the_rehearsal_of_before(smdp: Command) -> None:
    ran = smdp("plan", "--json")
    assert ran.stderr == ""
    ((kind, passed),) = ((one["kind"], one["passed"]) for one in json.loads(ran.stdout)["rehearsals"])
    assert (kind, passed) == ("late", True)


@pytest.mark.runs
@each_day
def test_jobs_run_in_the_folder_of_before(before: Path, smdp: Command) -> None:
    ran = smdp("launch", "--local", "--hosts", "1", "--workers-per-host", "1")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert len(jobs_of(before)) == 3
    assert [(before / one / "version").read_text() for one in (".smdp", ".smdp/local")] == ["1\n", "1\n"]


@pytest.mark.runs
def test_the_plan_of_before_is_launched_as_it_is(before: Path, smdp: Command) -> None:
    plan = json.loads((before / "plan.json").read_text())
    with local_cloud():
        boto3.client("s3").create_bucket(Bucket="bucket")
        boto3.client("s3").put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        ran = command_in(before)("launch", "plan.json", "--yes", env=dict(os.environ))
        assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
        sagemaker = boto3.client("sagemaker")
        job = sagemaker.describe_training_job(TrainingJobName=plan["job"])
        tags = sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert tags == plan["request"].pop("Tags")
    stated = {name: job[name] for name in plan["request"] if name != "OutputDataConfig"}
    assert {**stated, "OutputDataConfig": plan["request"]["OutputDataConfig"]} == plan["request"]


@pytest.mark.parametrize("day", [FIRST], indirect=False)
def test_a_plan_of_version_1_is_refused(smdp: Command, day: str) -> None:
    ran = smdp("launch", "plan.json", "--yes")
    assert ran.returncode == ExitCode.REFUSED
    assert ran.stdout == ""
    assert ran.stderr == (
        "smdp-launch: an older smdp-launch has written plan.json (its version is 1, not 2): write a new plan with "
        "plan --out\n"
    )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda plan: plan.update(plan=3),
            "a newer smdp-launch has written plan.json (its version is 3, and this smdp-launch reads 2): "
            f"{UPGRADE}, or write a new plan with plan --out",
        ),
        (
            lambda plan: plan["spec"]["compute"].update(colour="red"),
            f"plan.json has the setting compute.colour, which this smdp-launch does not know: {UPGRADE}, or "
            "write a new plan with plan --out",
        ),
        (
            lambda plan: plan["spec"]["compute"].update(max_run="long"),
            "plan.json is not a complete plan (compute.max_run: Input should be a valid integer); write a new plan "
            "with plan --out",
        ),
        (
            lambda plan: plan.update(plan="two"),
            f"{OLDER} (its version is 'two', not 2)",
        ),
        (
            lambda plan: plan.update(plan=True),
            f"{OLDER} (its version is True, not 2)",
        ),
        (lambda plan: plan.pop("plan"), "plan.json is not a plan of smdp-launch; write one with plan --out"),
    ],
    ids=["newer", "unknown setting", "wrong type", "text", "boolean", "none"],
)
def test_a_plan_that_is_not_understood_is_refused(
    before: Path, smdp: Command, edit: Callable[[Any], object], message: str
) -> None:
    change(before / "plan.json", edit)
    ran = smdp("launch", "plan.json", "--yes", "--dry-run")
    assert ran.returncode == ExitCode.REFUSED
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith(f"smdp-launch: {message}")


def test_new_members_of_a_plan_are_ignored(before: Path, smdp: Command) -> None:
    change(before / "plan.json", lambda plan: plan.update(weather="fine"))
    assert smdp("launch", "plan.json", "--yes", "--dry-run").returncode == ExitCode.OK


def test_a_rehearsal_of_another_version_is_left_out_with_a_note(before: Path, smdp: Command) -> None:
    (report,) = (before / ".smdp" / "rehearsals").iterdir()
    change(report, lambda document: document.update(weather="fine"))
    assert "rehearsed  late PASS" in smdp("plan").stdout
    change(report, lambda document: document.update(rehearsal=2))
    ran = smdp("plan")
    assert "rehearsed" not in ran.stdout
    assert ran.stderr.startswith(
        f"note: a rehearsal is left out, because a newer smdp-launch has written {report} (its version is 2, and this "
        f"smdp-launch reads 1): {UPGRADE}, or rehearse the job again\n"
    )


@pytest.mark.parametrize(
    "arguments", [["list"], ["status"], ["launch", "--local"], ["plan"], ["download"]], ids=" ".join
)
def test_a_state_folder_of_a_newer_version_is_refused(before: Path, smdp: Command, arguments: list[str]) -> None:
    (before / ".smdp" / "version").write_text("2\n")
    history = (before / ".smdp" / "history.jsonl").read_bytes()
    ran = smdp(*arguments)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr.splitlines()[-1] == (
        f"smdp-launch: a newer smdp-launch has written {before / '.smdp'} (its version is 2, and this smdp-launch "
        f"reads 1): {UPGRADE}, or work in another folder"
    )
    assert (before / ".smdp" / "history.jsonl").read_bytes() == history


@pytest.mark.parametrize("arguments", [["local", "up"], ["local", "status"], ["local", "down"], ["launch", "--local"]])
def test_a_local_cloud_of_a_newer_version_is_refused(before: Path, smdp: Command, arguments: list[str]) -> None:
    (before / ".smdp" / "local" / "version").write_text("2\n")
    ran = smdp(*arguments)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr.splitlines()[-1] == (
        f"smdp-launch: The local cloud cannot be used: a newer smdp-launch has written {before / '.smdp' / 'local'} "
        f"(its version is 2, and this smdp-launch reads 1): {UPGRADE}, or work in another folder."
    )


def test_a_state_folder_without_a_readable_version_is_refused(before: Path, smdp: Command) -> None:
    (before / ".smdp" / "version").write_text("?")
    ran = smdp("list")
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr.startswith(f"smdp-launch: {before / '.smdp' / 'version'} has no version: remove the file ")


@pytest.mark.parametrize("content", [b"", b"\n", b"\0\0"])
def test_a_state_folder_whose_version_is_lost_is_read_and_gets_its_version(
    before: Path, smdp: Command, content: bytes
) -> None:
    versions = [before / ".smdp" / "version", before / ".smdp" / "local" / "version"]
    for one in versions:
        one.write_bytes(content)
    listed = smdp("list")
    assert (listed.returncode, "no job was launched" in listed.stdout) == (ExitCode.OK, False)
    assert smdp("local", "up").returncode == smdp("local", "down").returncode == ExitCode.OK
    assert [one.read_text() for one in versions] == [f"{STATE_VERSION}\n", f"{LOCAL_CLOUD_VERSION}\n"]


def test_history_of_a_later_version_is_read(before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(before)
    known, ended = launches(), ends()
    history = before / ".smdp" / "history.jsonl"
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    history.write_text("".join(json.dumps({**one, "weather": "fine"}) + "\n" for one in lines))
    assert (launches(), ends()) == (known, ended)
    assert len(known) == len(ended) == 2
    with history.open("a") as file:
        file.write(json.dumps({"kind": "a line of another kind", "job": known[0].job}) + "\n")
        file.write(json.dumps({**lines[0], "hosts": "two"}) + "\n" + "[" * 100_000 + "\n")
    record_launch("new-1", "us-east-1", "job.yaml", "0" * 64, NOW)
    assert launches() == [*known, Launch("new-1", "us-east-1", "job.yaml", "0" * 64, "2026-11-21T01:02:03+00:00")]
    assert all(isinstance(one, End) for one in ends().values())


def test_job_state_of_a_later_version_is_read(before: Path, smdp: Command) -> None:
    trained, _ = jobs_of(before)
    change(before / ".smdp/local/jobs" / trained / "state.json", lambda state: state.update(weather="fine"))
    assert json.loads(smdp("status", trained, "--json").stdout)["training_job_status"] == "Completed"


def test_a_job_file_of_a_newer_version_is_refused(before: Path, smdp: Command) -> None:
    path = before / "job.yaml"
    path.write_text(path.read_text().replace("schema: 1", "schema: 2"))
    ran = smdp("validate")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP205]: schema 2 is not supported" in ran.stderr
    assert "for a file of a newer version, install that version of smdp-launch" in ran.stderr


def test_an_event_of_another_version_is_text() -> None:
    line = Line('{"smdp_event": 1, "event": "step", "step": 3}', 0, False)
    assert (event_of(line) or {})["step"] == 3
    for version in ("2", '"1"', "0", "null"):
        assert event_of(replace(line, text=line.text.replace("1", version, 1))) is None


def test_the_policy_names_the_versions_that_are_written() -> None:
    page = (ROOT / "docs" / "reference" / "stability.md").read_text()
    header = (ROOT / "native" / "include" / "smdp" / "engine.h").read_text()
    frame = (ROOT / "native" / "engine" / "net" / "frame.h").read_text()
    abi = re.search(r"#define SMDP_ABI_VERSION (\d+)", header)
    protocol = re.search(r"kProtocolVersion = (\d+)", frame)
    assert abi is not None
    assert protocol is not None
    rows = {
        "[job file]": f"`schema` {SCHEMA_VERSION}",
        "saved plan": f"`plan` {PLAN_VERSION}",
        "rehearsals": f"`rehearsal` {REHEARSAL_VERSION}",
        "[events]": f"`smdp_event` {EVENT_VERSION}",
        "state folder": f"file `version`: {STATE_VERSION}",
        "local cloud": f"file `version`: {LOCAL_CLOUD_VERSION}",
        "C interface": f"`SMDP_ABI_VERSION` {abi[1]}",
        "[wire format]": f"protocol {protocol[1]}",
    }
    for part, version in rows.items():
        (row,) = re.findall(rf"^\| {re.escape(part)}.* \| (.*) \|$", page.partition("Not stable")[0], re.MULTILINE)
        assert row == version
