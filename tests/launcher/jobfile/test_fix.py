"""Every edit fixes its diagnostic and causes no other one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from smdp_launch.checking.job import CheckedJob, check_job
from smdp_launch.diagnostics import Diagnostic, Edit
from smdp_launch.edits import apply_edits, without_conflicts
from smdp_launch.planning.fix import fix_job
from tests.conftest import JOB, write_job
from tests.support.job_files.edits import named
from tests.support.job_files.examples import PAGES, block, diagnostics_of, script
from tests.support.job_files.good_files import FILES, workshop
from tests.support.job_files.mutation import mutants
from tests.support.job_files.wrong_files import folders
from tests.support.services.cloud import Cloud
from tests.support.services.faulty_service import cloud_with_data

#: A second error of the same file that the first one hides: no rule checks a value of the wrong type.
UNCOVERED = {
    "schema-version-is-a-number": [("SMDP303", "PyTorch 2.10 is built with CUDA 12.6; policy strict needs CUDA 11")]
}

#: One of this many mutants is tested.
SAMPLE = 60

FIXABLE = [one for one in folders() if any(each["edits"] for each in json.loads((one / "expected.json").read_text()))]


pytestmark = pytest.mark.usefixtures("user_defaults")


def checked_with(edits: Sequence[Edit]) -> CheckedJob:
    """``job.yaml`` in the current folder, read with ``edits``."""
    names = {one.file for one in edits}
    texts = {name: Path(name).read_bytes().decode("utf-8-sig") for name in names}
    made = {name: apply_edits(text, [one for one in edits if one.file == name]) for name, text in texts.items()}
    contents = {name: text.encode() for name, text in made.items()}
    return check_job(Path("job.yaml"), environ={}, contents=contents)


@pytest.mark.parametrize("folder", FIXABLE, ids=lambda folder: folder.name)
def test_each_edit_of_a_wrong_file_fixes_its_diagnostic_without_new_ones(
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
def test_fixing_a_whole_file_leaves_only_diagnostics_that_need_a_decision(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    fixed = fix_job(Path("job.yaml"), environ={})
    before, after = named(fixed.before.diagnostics), named(fixed.after.diagnostics)
    assert [one for one in after if one not in before] == UNCOVERED.get(folder.name, [])
    assert not any(one.edits for one in fixed.after.diagnostics)
    assert len(fixed.applied) == sum(bool(one.edits) for one in fixed.before.diagnostics)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_edits_of_small_errors_anywhere_in_a_sound_file_are_correct(
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
            # A version in quotes is looked up in the catalogue, and a number is not.
            assert one.code == "SMDP206" or set(after) <= set(named(before)), (mutant, one)


def test_a_third_of_the_wrong_files_can_be_fixed() -> None:
    assert len(FIXABLE) * 3 >= len(folders())


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("account") / "state") as made:
        yield made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_edit_of_a_page_example_leaves_no_diagnostic(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    account: Callable[[], Cloud] = lambda: request.getfixturevalue("cloud")  # noqa: E731
    example, python = block(page, "Wrong"), script(page, "Wrong")
    (one,) = diagnostics_of(tmp_path / "before", example, monkeypatch, account, python=python)
    if one.edits:
        assert diagnostics_of(tmp_path / "after", example, monkeypatch, account, one.edits, python) == []


# -- corrections -----------------------------------------------------------------------------------------------------

#: A line for `compute:` of the sound job, and the line after the fix.
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


@pytest.mark.parametrize("value", ["max_usd: $2,500.00", "max_usd: $2,500", "max_usd_per_week: 2 USD, 5 USD"])
def test_number_that_yaml_ends_at_its_comma_is_not_changed(tmp_path: Path, value: str) -> None:
    text = f"{JOB}budget: {{{value}}}\n"
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert value.partition(",")[0] in (fixed.files[0].after if fixed.files else text)


def test_time_that_yaml_ends_at_its_comma_is_not_changed(tmp_path: Path) -> None:
    max_run = "max_run: 2 days, 3:00:00"
    compute = f"compute: {{instance_type: ml.p4d.24xlarge, instance_count: 2, {max_run}}}\n"
    text = re.sub(r"compute:\n(  .*\n)+", compute, JOB)
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert max_run in (fixed.files[0].after if fixed.files else text)


def test_two_misspellings_of_one_key_do_not_become_duplicate_keys(tmp_path: Path) -> None:
    text = JOB.replace("instance_count: 2", "instances: 2\n  instance_cnt: 4")
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert not [one for one in fixed.after.diagnostics if one.code.startswith("SMDP1")], fixed.after.diagnostics


def test_block_of_one_line_is_not_moved(tmp_path: Path) -> None:
    text = JOB.replace("  hyperparameters: {epochs: 2}\n", "") + "hyperparameters:\n  epochs: 3 # three\n"
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert not [one for one in fixed.after.diagnostics if one.code.startswith("SMDP1")], fixed.after.diagnostics
    assert all("# three" in one.after for one in fixed.files)


def test_spot_false_is_removed(tmp_path: Path) -> None:
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
def test_metric_without_group_gets_one_around_its_value(tmp_path: Path, regex: str, meant: str) -> None:
    fixed = fix_job(write_job(tmp_path, f"{JOB}metrics:\n  loss: {regex}\n"), environ={})
    assert named(fixed.after.diagnostics) == []
    assert fixed.files[0].after == f"{JOB}metrics:\n  loss: {meant}\n"


def test_a_metric_that_matches_no_number_needs_a_decision(tmp_path: Path) -> None:
    (one,) = check_job(write_job(tmp_path, f"{JOB}metrics: {{loss: 'loss is here'}}\n"), environ={}).diagnostics
    assert (one.code, one.edits) == ("SMDP606", ())
    assert "such as" in one.help


#: A section as a list, the help, and the section after the fix; empty if there is none.
LISTS = {
    "tags:\n  - Key: team\n    Value: vision\n  - Key: a\n    Value: b\n": "tags: {team: vision, a: b}",
    "tags: [{Value: vision, Key: team}]\n": "tags: {team: vision}",
    "environment:\n- LEVEL: info\n": "environment: {LEVEL: info}",
    "metrics: [{Name: loss, Regex: 'loss=(.*)'}]\n": 'metrics: {loss: "loss=(.*)"}',
}
LISTS_TO_DECIDE = {
    "tags: [{Key: team, Value: 7}]\n": 'write tags: {team: "7"}',
    "tags: [{Key: team, Value: a}, {Key: team, Value: b}]\n": "write tags: {NAME: VALUE}",
    "tags: [team]\n": "write tags: {NAME: VALUE}",
    "tags: [{Key: team, Value: .nan}]\n": "write tags: {NAME: VALUE}",
    "tags: [{Key: team, Value: '${TEAM}'}]\n": "write tags: {NAME: VALUE}",
    "environment: [{name: DB_PASSWORD, value: hunter2}]\n": "write environment: {NAME: VALUE}",
}


@pytest.mark.parametrize("wrong", LISTS)
def test_list_of_a_request_becomes_a_mapping(tmp_path: Path, wrong: str) -> None:
    fixed = fix_job(write_job(tmp_path, JOB + wrong), environ={})
    assert named(fixed.after.diagnostics) == []
    assert fixed.files[0].after == f"{JOB}{LISTS[wrong]}\n"
    assert fixed.applied[0].help == f"write {LISTS[wrong]}"


@pytest.mark.parametrize("wrong", LISTS_TO_DECIDE)
def test_list_that_is_not_exactly_a_mapping_has_no_edit(tmp_path: Path, wrong: str) -> None:
    found = check_job(write_job(tmp_path, JOB + wrong), environ={"TEAM": "vision"}).diagnostics
    (one,) = [each for each in found if each.code == "SMDP203"]
    assert (one.help, one.edits) == (LISTS_TO_DECIDE[wrong], ())


@pytest.mark.parametrize(
    ("wrong", "help_", "is_exact"),
    [
        ("- name: train\n  s3: s3://bucket/train\n", "write channels: {train: {s3: s3://bucket/train}}", True),
        (
            "- ChannelName: train\n  DataSource: {S3DataSource: {S3Uri: s3://bucket/train}}\n",
            "write channels: {train: {s3: s3://bucket/train}}",
            True,
        ),
        (
            "- ChannelName: train\n  InputMode: Pipe\n  DataSource: {S3DataSource: {S3Uri: s3://bucket/train}}\n",
            "write channels: {train: {s3: s3://bucket/train}}",
            False,
        ),
        ("- s3://bucket/train\n", "write channels: {train: {s3: s3://BUCKET/PREFIX}}", False),
    ],
)
def test_channels_as_a_list_become_a_mapping(tmp_path: Path, wrong: str, help_: str, is_exact: bool) -> None:
    text = JOB.replace('  train: {s3: "s3://bucket/train"}\n', wrong).replace("local: {channels: {train: data}}\n", "")
    path = write_job(tmp_path, text)
    (one,) = check_job(path, environ={}).diagnostics
    assert (one.code, one.help, bool(one.edits)) == ("SMDP203", help_, is_exact)
    assert named(fix_job(path, environ={}).after.diagnostics) == ([] if is_exact else named([one]))


def test_region_without_a_hyphen_and_quotes_of_a_word_processor_are_corrected(tmp_path: Path) -> None:
    text = JOB.replace("region: us-east-1", "region: us-east1").replace('"2.0.1"', "\u201c2.0.1\u201d")
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert named(fixed.after.diagnostics) == []
    assert fixed.files[0].after == JOB.replace('"2.0.1"', "2.0.1")


def test_folder_with_a_similar_name_is_written_if_it_contains_the_script(tmp_path: Path) -> None:
    path = write_job(tmp_path, JOB.replace("source: src", "source: scr"))
    assert fix_job(path, environ={}).files[0].after == JOB
    (tmp_path / "src" / "train.py").rename(tmp_path / "src" / "main.py")
    (one,) = check_job(path, environ={}).diagnostics
    assert (one.code, one.help, one.edits) == ("SMDP401", "did you mean src?", ())


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_removing_all_entries_removes_their_parent(tmp_path: Path) -> None:
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"]
    block_style = "environment:\n" + "".join(f"  {name}: '1'\n" for name in names)
    flow_style = "environment: {" + ", ".join(f"{name}: '1'" for name in names) + "}\n"
    for text in (block_style, flow_style):
        fixed = fix_job(write_job(tmp_path, JOB + text), environ={})
        assert (named(fixed.after.diagnostics), fixed.files[0].after, len(fixed.applied)) == ([], JOB, 5)


def test_fix_that_reveals_another_is_followed_by_it(tmp_path: Path) -> None:
    text = JOB.replace("instance_type: ml.p4d.24xlarge", "instance_typ: ml.p4d.24xlarg")
    fixed = fix_job(write_job(tmp_path, text), environ={})
    assert [one.code for one in fixed.applied] == ["SMDP201", "SMDP301"]
    assert fixed.files[0].after == JOB


def test_first_of_two_conflicting_fixes_is_applied() -> None:
    one = Diagnostic("SMDP301", "a", edits=(Edit("f", 1, 1, 1, 3, "x"),))
    two = Diagnostic("SMDP302", "b", edits=(Edit("f", 1, 2, 1, 4, "y"),))
    apart = Diagnostic("SMDP303", "c", edits=(Edit("f", 1, 5, 1, 6, "z"),))
    elsewhere = Diagnostic("SMDP304", "d", edits=(Edit("g", 1, 1, 1, 1, "z"),))
    assert without_conflicts([one, two, apart, elsewhere], {"f": "abcdef"}) == [one, apart]


def test_edits_outside_a_text_are_refused() -> None:
    for edit in (Edit("f", 2, 1, 2, 1, ""), Edit("f", 1, 5, 1, 5, ""), Edit("f", 1, 3, 1, 1, "")):
        with pytest.raises(ValueError, match=r"column|line|overlap"):
            apply_edits("abc", [edit])
