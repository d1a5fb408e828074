"""Every edit fixes its diagnostic and brings no other; ``validate --fix`` applies them and keeps the rest of a file."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pexpect
import pytest

from smdp_launch.checking.job import CheckedJob, check_job
from smdp_launch.diagnostics import Diagnostic, Edit
from smdp_launch.edits import apply_edits, without_conflicts
from smdp_launch.errors import EnvironmentProblem, ExitCode, Refused
from smdp_launch.planning.fix import fix_job, write
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, write_job
from tests.launcher.cli.test_json_documents import validator
from tests.support.job_files.examples import PAGES, block, script, tell
from tests.support.job_files.good_files import FILES, workshop
from tests.support.job_files.mutation import mutants
from tests.support.job_files.wrong_files import folders
from tests.support.services.cloud import Cloud
from tests.support.services.faulty_service import cloud_with_data

#: A second mistake of the same file that the first one hides: no rule looks at a value of the wrong type.
UNCOVERED = {"schema-version-is-a-number": [("SMDP302", "there is no training image of PyTorch 2.10")]}

#: Every how many of the mutants are tried.
SAMPLE = 60

FIXABLE = [one for one in folders() if any(each["edits"] for each in json.loads((one / "expected.json").read_text()))]


@pytest.fixture(autouse=True)
def nobodys_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "nobody"))


def named(found: Sequence[Diagnostic]) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in found]


def checked_with(edits: Sequence[Edit]) -> CheckedJob:
    """``job.yaml`` in the current folder, read with ``edits``."""
    names = {one.file for one in edits}
    texts = {name: Path(name).read_bytes().decode("utf-8-sig") for name in names}
    made = {name: apply_edits(text, [one for one in edits if one.file == name]) for name, text in texts.items()}
    contents = {name: text.encode() for name, text in made.items()}
    return check_job(Path("job.yaml"), environ={}, contents=contents)


@pytest.mark.parametrize("folder", FIXABLE, ids=lambda folder: folder.name)
def test_each_edit_of_a_wrong_file_fixes_its_diagnostic_and_brings_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = check_job(Path("job.yaml"), environ={}).diagnostics
    for one in before:
        if one.edits:
            after = named(checked_with(one.edits).diagnostics)
            assert (one.code, one.message) not in after
            assert [each for each in after if each not in named(before)] == UNCOVERED.get(folder.name, [])


@pytest.mark.parametrize("folder", FIXABLE, ids=lambda folder: folder.name)
def test_fixing_a_wrong_file_as_a_whole_leaves_only_what_needs_a_decision(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    fixed = fix_job(Path("job.yaml"), environ={})
    before, after = named(fixed.before.diagnostics), named(fixed.after.diagnostics)
    assert [one for one in after if one not in before] == UNCOVERED.get(folder.name, [])
    assert not any(one.edits for one in fixed.after.diagnostics)
    assert len(fixed.applied) == sum(bool(one.edits) for one in fixed.before.diagnostics)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_edits_of_small_mistakes_anywhere_in_a_sound_file_are_true(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop(tmp_path)
    monkeypatch.chdir(tmp_path)
    for mutant in list(mutants(file.read_text()))[::SAMPLE]:
        Path("job.yaml").write_text(mutant.text)
        before = check_job(Path("job.yaml"), environ={}).diagnostics
        for one in before:
            after = named(checked_with(one.edits).diagnostics) if one.edits else []
            assert (one.code, one.message) not in after, mutant
            # A version in quotes is looked up, which nobody does with a number.
            assert one.code == "SMDP206" or set(after) <= set(named(before)), (mutant, one)


def test_a_third_of_the_wrong_files_can_be_fixed() -> None:
    assert len(FIXABLE) * 3 >= len(folders())


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("account") / "state") as made:
        yield made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_edit_of_a_pages_wrong_example_leaves_nothing(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    account: Callable[[], Cloud] = lambda: request.getfixturevalue("cloud")  # noqa: E731
    example, python = block(page, "Wrong"), script(page, "Wrong")
    (one,) = tell(tmp_path / "before", example, monkeypatch, account, python=python)
    if one.edits:
        assert tell(tmp_path / "after", example, monkeypatch, account, one.edits, python) == []


# -- what the help names ---------------------------------------------------------------------------------------------

#: What replaces "compute:" or is added to the sound job, and what the fix makes of it.
MEANT = {
    "max_run: 24h": "max_run: 86400",
    "max_run: 1:00:00": "max_run: 3600",
    "max_run: '1:00:00'": "max_run: 3600",
    "max_run: 1h30m": "max_run: 5400",
    "max_run: 24*3600": "max_run: 86400",
    'max_run: "600"': "max_run: 600",
    "max_run: 600.0": "max_run: 600",
    "volume_gb: 100GB": "volume_gb: 100",
    "volume_gb: 0.5 TiB": "volume_gb: 512",
    "max_pending: 1d": "max_pending: 86400",
    "fallback_types: ml.p3dn.24xlarge": "fallback_types: [ml.p3dn.24xlarge]",
    "fallback_types: [p3dn.24xlarge]": "fallback_types: [ml.p3dn.24xlarge]",
}


@pytest.mark.parametrize(("wrong", "right"), MEANT.items())
def test_a_quantity_with_its_unit_becomes_a_number(tmp_path: Path, wrong: str, right: str) -> None:
    sound = JOB.replace(
        "  max_run: 600\n", f"  max_run: 600\n  {wrong}\n" if "max_run" not in wrong else f"  {wrong}\n"
    )
    job = write_job(tmp_path, sound)
    fixed = fix_job(job, environ={})
    assert named(fixed.after.diagnostics) == []
    (file,) = fixed.files
    assert file.after == sound.replace(wrong, right)


@pytest.mark.parametrize("wrong", ["max_run: 1:30", "max_run: long", "max_run: 1m 2h", "volume_gb: 100 apples"])
def test_what_may_mean_two_things_has_no_edit(tmp_path: Path, wrong: str) -> None:
    (one,) = check_job(write_job(tmp_path, JOB.replace("max_run: 600", wrong)), environ={}).diagnostics
    assert one.edits == ()


def test_spot_true_becomes_the_mapping_with_its_fields(tmp_path: Path) -> None:
    fixed = fix_job(write_job(tmp_path, f"{JOB}spot: true  # cheap\n"), environ={})
    assert named(fixed.after.diagnostics) == []
    assert "spot: {max_wait: 4200}  # cheap\n" in fixed.files[0].after
    assert "checkpoint: {s3: s3://bucket/output/checkpoints}\n" in fixed.files[0].after


def test_a_number_that_ends_at_its_comma_is_left_to_a_person(tmp_path: Path) -> None:
    text = JOB + "budget: {max_usd: $2,500.00}\n"
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert "max_usd: $2" in (fixed.files[0].after if fixed.files else text)


def test_two_slips_for_one_key_do_not_become_the_same_key(tmp_path: Path) -> None:
    text = JOB.replace("instance_count: 2", "instances: 2\n  instance_cnt: 4")
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert not [one for one in fixed.after.diagnostics if one.code.startswith("SMDP1")], fixed.after.diagnostics


def test_a_block_of_one_line_is_left_where_it_is(tmp_path: Path) -> None:
    text = JOB.replace("  hyperparameters: {epochs: 2}\n", "") + "hyperparameters:\n  epochs: 3 # three\n"
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert not [one for one in fixed.after.diagnostics if one.code.startswith("SMDP1")], fixed.after.diagnostics
    assert all("# three" in one.after for one in fixed.files)


def test_spot_false_goes(tmp_path: Path) -> None:
    fixed = fix_job(write_job(tmp_path, f"{JOB}spot: false\n"), environ={})
    assert fixed.files[0].after == JOB


@pytest.mark.parametrize(
    ("regex", "meant"),
    [
        ("'loss: [0-9.]+'", "'loss: ([0-9.]+)'"),
        (r"'loss=\d+\.\d+'", r"'loss=(\d+\.\d+)'"),
        ('"acc: .*%"', '"acc: (.*)%"'),
        (r"'epoch \d+ loss \S+'", r"'epoch \d+ loss (\S+)'"),
        (r"loss:\s*[0-9]+", r"loss:\s*([0-9]+)"),
    ],
)
def test_a_metric_without_a_group_gets_one_around_its_own_value(tmp_path: Path, regex: str, meant: str) -> None:
    fixed = fix_job(write_job(tmp_path, f"{JOB}metrics:\n  loss: {regex}\n"), environ={})
    assert named(fixed.after.diagnostics) == []
    assert fixed.files[0].after == f"{JOB}metrics:\n  loss: {meant}\n"


def test_a_metric_that_matches_no_number_needs_a_decision(tmp_path: Path) -> None:
    (one,) = check_job(write_job(tmp_path, f"{JOB}metrics: {{loss: 'loss is here'}}\n"), environ={}).diagnostics
    assert (one.code, one.edits) == ("SMDP606", ())
    assert "such as" in one.help


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_entries_that_all_have_to_go_take_their_parent_with_them(tmp_path: Path) -> None:
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"]
    block_style = "environment:\n" + "".join(f"  {name}: '1'\n" for name in names)
    flow_style = "environment: {" + ", ".join(f"{name}: '1'" for name in names) + "}\n"
    for text in (block_style, flow_style):
        fixed = fix_job(write_job(tmp_path, JOB + text), environ={})
        assert (named(fixed.after.diagnostics), fixed.files[0].after, len(fixed.applied)) == ([], JOB, 5)


def test_a_fix_that_uncovers_another_is_followed_by_it(tmp_path: Path) -> None:
    text = JOB.replace("instance_type: ml.p4d.24xlarge", "instance_typ: ml.p4d.24xlarg")
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert [one.code for one in fixed.applied] == ["SMDP201", "SMDP301"]
    assert fixed.files[0].after == JOB


def test_of_two_fixes_of_one_place_the_first_is_applied() -> None:
    one = Diagnostic("SMDP301", "a", edits=(Edit("f", 1, 1, 1, 3, "x"),))
    two = Diagnostic("SMDP302", "b", edits=(Edit("f", 1, 2, 1, 4, "y"),))
    apart = Diagnostic("SMDP303", "c", edits=(Edit("f", 1, 5, 1, 6, "z"),))
    elsewhere = Diagnostic("SMDP304", "d", edits=(Edit("g", 1, 1, 1, 1, "z"),))
    assert without_conflicts([one, two, apart, elsewhere], {"f": "abcdef"}) == [one, apart]


def test_edits_outside_a_text_are_refused() -> None:
    for edit in (Edit("f", 2, 1, 2, 1, ""), Edit("f", 1, 5, 1, 5, ""), Edit("f", 1, 3, 1, 1, "")):
        with pytest.raises(ValueError, match=r"column|line|overlap"):
            apply_edits("abc", [edit])


# -- files -----------------------------------------------------------------------------------------------------------

WRONG = JOB.replace("name: small", "nme: small")


def test_the_projects_defaults_are_fixed_and_the_persons_own_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path, JOB.replace("region: us-east-1\n", "").replace("engine: native\n", ""))
    own = tmp_path / "nobody" / "smdp-launch" / "smdp-defaults.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("region: us-esat-1\n")
    Path("smdp-defaults.yaml").write_text("engine: nativ\n")
    fixed = fix_job(Path("job.yaml"), environ={})
    assert [(one.name, one.after) for one in fixed.files] == [("smdp-defaults.yaml", "engine: native\n")]
    assert [(one.code, one.edits) for one in fixed.after.diagnostics] == [("SMDP320", ())]


@pytest.mark.parametrize("settings", [["compute.max_run=24h"], ["nme=x"]])
def test_what_a_flag_says_has_no_edit(tmp_path: Path, settings: list[str]) -> None:
    found = check_job(write_job(tmp_path), settings=settings, environ={"SMDP_JOB__AMP": "fp61"}).diagnostics
    assert len(found) == 2
    assert not any(one.edits for one in found)


def test_a_mapping_has_no_edits(tmp_path: Path) -> None:
    from smdp_launch.checking.job import check_mapping

    found = check_mapping({"schema": 1, "nme": "x"}, tmp_path, environ={}).diagnostics
    assert found
    assert not any(one.edits for one in found)


def test_mark_permissions_and_link_stay(tmp_path: Path) -> None:
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


def test_a_file_that_changed_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    job = write_job(tmp_path, WRONG)
    fixed = fix_job(job, environ={})
    job.write_text("changed: true\n")
    with pytest.raises(Refused, match="changed meanwhile"):
        write(fixed)
    assert job.read_text() == "changed: true\n"


def test_a_file_that_nobody_may_write_is_left_as_it_is(tmp_path: Path) -> None:
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
    assert ran.stderr.startswith("Nothing was changed")
    assert (job_folder / "job.yaml").read_text() == WRONG


def test_fix_with_yes_writes_the_file_and_exits_as_the_fixed_file_does(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG)
    ran = smdp_launch("validate", "--fix", "--yes")
    assert (ran.returncode, ran.stderr) == (0, "next: smdp-launch plan\n")
    assert ran.stdout.endswith("job.yaml: 1 fixed\njob.yaml: sound\n")
    assert (job_folder / "job.yaml").read_text() == JOB


def test_what_cannot_be_fixed_is_shown_and_refused(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG.replace("max_run: 600", "max_run: long"))
    ran = smdp_launch("validate", "--fix", "--yes")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stderr.count("error[") == ran.stderr.count("error[SMDP203]") == 1
    assert "can be fixed" not in ran.stderr


def test_a_sound_file_has_nothing_to_fix(smdp_launch: Command) -> None:
    ran = smdp_launch("validate", "--fix")
    assert (ran.returncode, ran.stdout) == (0, "job.yaml: sound\n")


def test_a_file_without_fixes_says_that_each_needs_a_decision(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB.replace("max_run: 600", "max_run: long"))
    ran = smdp_launch("validate", "--fix", "--yes")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stdout.startswith("Nothing can be fixed without a decision")


@pytest.mark.parametrize("arguments", [["--yes"], ["--fix", "--json"]])
def test_fixing_asks_for_what_it_needs(smdp_launch: Command, arguments: list[str]) -> None:
    ran = smdp_launch("validate", *arguments)
    assert ran.returncode == ExitCode.USAGE


def test_fix_as_json_is_the_document_of_the_fixed_file_with_what_was_fixed(
    smdp_launch: Command, job_folder: Path
) -> None:
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


def test_a_key_of_aws_is_removed(tmp_path: Path) -> None:
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
        "\n1 can be fixed with smdp-launch validate --fix\n1 error; smdp-launch explain SMDP201 tells more\n"
    )
