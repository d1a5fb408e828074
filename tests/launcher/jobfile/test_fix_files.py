"""``validate --fix`` writes the fixed files, keeps everything else in them, and never shows a secret."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pexpect
import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.errors import EnvironmentProblem, ExitCode, Refused
from smdp_launch.planning.fix import fix_job, write
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, write_job
from tests.support.job_files.edits import named
from tests.support.json_documents import validator

pytestmark = pytest.mark.usefixtures("user_defaults")

WRONG = JOB.replace("name: small", "nme: small")


def test_project_defaults_are_fixed_and_user_defaults_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_defaults: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path, JOB.replace("region: us-east-1\n", "").replace("engine: native\n", ""))
    user_defaults.parent.mkdir(parents=True)
    user_defaults.write_text("region: us-esat-1\n")
    Path("smdp-defaults.yaml").write_text("engine: nativ\n")
    fixed = fix_job(Path("job.yaml"), environ={})
    assert [(one.name, one.after) for one in fixed.files] == [("smdp-defaults.yaml", "engine: native\n")]
    assert [(one.code, one.edits) for one in fixed.after.diagnostics] == [("SMDP320", ())]


@pytest.mark.parametrize("settings", [["compute.max_run=24h"], ["nme=x"]])
def test_error_in_a_flag_has_no_edit(tmp_path: Path, settings: list[str]) -> None:
    found = check_job(write_job(tmp_path), settings=settings, environ={"SMDP_JOB__AMP": "fp61"}).diagnostics
    assert len(found) == 2
    assert not any(one.edits for one in found)


def test_a_mapping_has_no_edits(tmp_path: Path) -> None:
    from smdp_launch.checking.job import check_mapping

    found = check_mapping({"schema": 1, "nme": "x"}, tmp_path, environ={}).diagnostics
    assert found
    assert not any(one.edits for one in found)


def test_fix_keeps_byte_order_mark_permissions_and_link(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    job.write_bytes(b"\xef\xbb\xbf" + WRONG.replace("\n", "\r\n").encode())
    job.chmod(0o640)
    link = tmp_path / "folder" / "job.yaml"
    link.parent.mkdir()
    link.symlink_to("../job.yaml")
    (tmp_path / "folder" / "src").symlink_to("../src")
    write(fix_job(link, environ={}))
    assert job.read_bytes() == b"\xef\xbb\xbf" + JOB.replace("\n", "\r\n").encode()
    assert stat.S_IMODE(job.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert [one.name for one in link.parent.iterdir() if one.name.startswith(".job")] == []


def test_file_that_changed_since_it_was_read_is_not_written(tmp_path: Path) -> None:
    job = write_job(tmp_path, WRONG)
    fixed = fix_job(job, environ={})
    job.write_text("changed: true\n")
    with pytest.raises(Refused, match="has changed since it was read"):
        write(fixed)
    assert job.read_text() == "changed: true\n"


def test_write_protected_file_is_not_written(tmp_path: Path) -> None:
    job = write_job(tmp_path, WRONG)
    job.chmod(0o444)
    with pytest.raises(EnvironmentProblem, match=r"job\.yaml is write-protected .* .chmod u\+w"):
        write(fix_job(job, environ={}))
    assert job.read_text() == WRONG
    assert job.stat().st_mode & 0o777 == 0o444


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write_job(tmp_path, WRONG)
    fixed = fix_job(job, environ={})

    def full(*_: object, **__: object) -> tuple[int, str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    with pytest.raises(EnvironmentProblem, match=r"job\.yaml cannot be written: disk full in "):
        write(fixed)
    assert job.read_text() == WRONG


# -- the command -----------------------------------------------------------------------------------------------------


def test_fix_without_a_terminal_shows_the_diff_and_changes_nothing(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG)
    ran = smdp_launch("validate", "--fix")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "-nme: small\n+name: small\n" in ran.stdout
    assert ran.stderr.startswith("No file was changed")
    assert (job_folder / "job.yaml").read_text() == WRONG


def test_fix_with_yes_writes_the_file_and_exits_as_the_fixed_file_does(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG)
    ran = smdp_launch("validate", "--fix", "--yes")
    assert (ran.returncode, ran.stderr) == (0, "next: smdp-launch plan\n")
    assert ran.stdout.endswith("job.yaml: 1 fixed\njob.yaml: valid\n")
    assert (job_folder / "job.yaml").read_text() == JOB


def test_what_cannot_be_fixed_is_shown_and_refused(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG.replace("max_run: 600", "max_run: long"))
    ran = smdp_launch("validate", "--fix", "--yes")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stderr.count("error[") == ran.stderr.count("error[SMDP203]") == 1
    assert "can be fixed" not in ran.stderr


def test_valid_file_has_nothing_to_fix(smdp_launch: Command) -> None:
    ran = smdp_launch("validate", "--fix")
    assert (ran.returncode, ran.stdout) == (0, "job.yaml: valid\n")


def test_a_file_without_fixes_says_that_each_needs_a_decision(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB.replace("max_run: 600", "max_run: long"))
    ran = smdp_launch("validate", "--fix", "--yes")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stdout.startswith("No fix can be applied without your decision")


@pytest.mark.parametrize("arguments", [["--yes"], ["--fix", "--json"]])
def test_incomplete_fix_options_are_refused(smdp_launch: Command, arguments: list[str]) -> None:
    ran = smdp_launch("validate", *arguments)
    assert ran.returncode == ExitCode.USAGE


def test_fix_json_describes_the_fixed_file_and_lists_fixed_diagnostics(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG)
    ran = smdp_launch("validate", "--fix", "--yes", "--json")
    document = json.loads(ran.stdout)
    validator("validate").validate(document)
    assert (ran.returncode, document["sound"], document["diagnostics"]) == (0, True, [])
    assert [one["code"] for one in document["fixed"]] == ["SMDP201"]
    assert (job_folder / "job.yaml").read_text() == JOB


@pytest.mark.parametrize(("answer", "text"), [("y", JOB), ("n", WRONG), ("", WRONG)])
def test_on_a_terminal_the_fix_asks_first(tmp_path: Path, answer: str, text: str) -> None:
    job = write_job(tmp_path, WRONG)
    ran = pexpect.spawn(
        str(LAUNCHER), ["validate", "--fix"], cwd=tmp_path, env=clean_environment(), encoding="utf-8", timeout=120
    )
    ran.expect(r"Apply the fixes\? \[y/N\]: ")
    ran.sendline(answer)
    ran.expect(pexpect.EOF)
    ran.close()
    assert job.read_text() == text
    assert ran.exitstatus == (0 if answer == "y" else ExitCode.JOB_FILE_REFUSED)


# -- secrets ---------------------------------------------------------------------------------------------------------

SECRET = "correct-horse-battery-staple"


@pytest.mark.parametrize(
    "more",
    [
        f"environment: {{DB_PASSWORD: {SECRET}}}\n",
        f"environment:\n  DB_PASSWORD: >-\n    {SECRET}\n",
        f'environment:\n  DB_PASSWORD: "correct-horse-\\\n    battery-staple"\n',  # noqa: F541
        f"environment:\n  DB_PASSWORD: {SECRET}\n  AWS_SECRET_ACCESS_KEY: {SECRET}\n",
        f"environmnt:\n  DB_PASSWORD: {SECRET}\n",
        f"overlay:\n  Tgas: [{{api_key: {SECRET}}}]\n",
        f"environment:\n\tDB_PASSWORD: {SECRET}\n",
        f"environment:\n  DB_PASSWORD: {SECRET}: no\n",
        "overlay: {note: '-----BEGIN RSA PRIVATE KEY-----\n\n  correct-horse\n\n  -----END RSA PRIVATE KEY-----'}\n",
    ],
)
def test_no_diff_or_edit_shows_a_secret(smdp_launch: Command, job_folder: Path, more: str) -> None:
    (job_folder / "job.yaml").write_text(WRONG + more)
    for arguments in (["--fix"], ["--json"], ["--fix", "--yes", "--json"]):
        ran = smdp_launch("validate", *arguments)
        assert "correct-horse" not in ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr


def test_aws_key_is_removed(tmp_path: Path) -> None:
    text = f"{JOB}environment:\n  AWS_SECRET_ACCESS_KEY: {SECRET}\n  MODE: fast\n"
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert fixed.files[0].after == f"{JOB}environment:\n  MODE: fast\n"
    assert SECRET not in "".join(fixed.files[0].diff)


def test_an_edit_keeps_a_variable_and_never_writes_what_it_holds(tmp_path: Path) -> None:
    text = JOB.replace("s3://bucket/output", "s3://${BUCKET}/small") + "spot: {max_wait: 3600}\n"
    fixed = fix_job(write_job(tmp_path, text), environ={"BUCKET": "bucket"})
    assert named(fixed.after.diagnostics) == []
    assert 'checkpoint: {s3: "s3://${BUCKET}/small/checkpoints"}\n' in fixed.files[0].after


def test_the_command_line_counts_what_can_be_fixed(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG)
    ran: subprocess.CompletedProcess[str] = smdp_launch("plan")
    assert ran.stderr.endswith(
        "\n1 can be fixed with smdp-launch validate --fix\n1 error; for details: smdp-launch explain SMDP201\n"
    )
