"""``validate --format``: each diagnostic once, with its code, its place in the file and its fix, in four formats."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.checking.job import CheckedJob, check_job
from smdp_launch.cli.render.review.annotations import github, gitlab
from smdp_launch.cli.render.review.junit import junit
from smdp_launch.cli.render.review.places import entries
from smdp_launch.cli.render.review.sarif import sarif
from smdp_launch.diagnostics import Diagnostic, Edit, Severity, Span
from smdp_launch.errors import ExitCode
from smdp_launch.jobfile.config_sources import read_job
from smdp_launch.jobfile.load import load
from tests.conftest import JOB, Command, write_job

WRONG = JOB.replace("ml.p4d.24xlarge", "ml.p3.24xlarge").replace("epochs: 2", "epochs: 2, epohcs: 3")
#: What a person may write, with what a format has to escape.
HOSTILE = "a,b:c%\r\n<&>\"'\x00\x1b[31m\ud83d \U0001f600é"


def job_with(*diagnostics: Diagnostic, path: str = "job.yaml") -> CheckedJob:
    document, _ = read_job(Path(path), (), {}, {path: JOB.encode()})
    return CheckedJob(Path(path), load(document)[0], None, diagnostics)


def results(report: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(report)["runs"][0]["results"]
    return listed


def test_wrong_job_file_has_the_same_entries_in_every_format(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG)
    expected = [
        (one.code, one.span.line, one.severity.value)
        for one in check_job(job_folder / "job.yaml").diagnostics
        if one.span is not None
    ]
    assert {code for code, _, _ in expected} >= {"SMDP301"}

    runs = {name: smdp_launch("validate", "--format", name) for name in ("sarif", "junit", "github", "gitlab")}

    assert {run.returncode for run in runs.values()} == {ExitCode.JOB_FILE_REFUSED}
    assert all("error[SMDP301]" in run.stderr for run in runs.values()), "a person reads the errors, too"
    assert [
        (one["ruleId"], one["locations"][0]["physicalLocation"]["region"]["startLine"], one["level"])
        for one in results(runs["sarif"].stdout)
    ] == expected
    levels = {"error": "error", "warning": "warning", "notice": "note"}
    commands = re.findall(
        r"^::(\w+) file=job\.yaml,line=(\d+),.*title=smdp-launch (\w+)::", runs["github"].stdout, re.M
    )
    assert [(code, int(line), levels[level]) for level, line, code in commands] == expected
    severities = {"major": "error", "minor": "warning", "info": "note"}
    assert [
        (one["check_name"], one["location"]["lines"]["begin"], severities[one["severity"]])
        for one in json.loads(runs["gitlab"].stdout)
    ] == expected
    suites = ET.fromstring(runs["junit"].stdout)
    errors = [code for code, _, severity in expected if severity == "error"]
    assert [one.get("type", "") for one in suites.iter("failure")] == errors
    assert (suites.get("tests"), suites.get("failures")) == (str(len(expected)), str(len(errors)))


def test_valid_job_file_gives_an_empty_report_and_a_passed_test(smdp_launch: Command) -> None:
    assert results(smdp_launch("validate", "--format", "sarif").stdout) == []
    assert smdp_launch("validate", "--format", "gitlab").stdout.strip() == "[]"
    assert smdp_launch("validate", "--format", "github").stdout == ""
    valid = smdp_launch("validate", "--format", "junit")
    assert valid.returncode == ExitCode.OK
    suite = ET.fromstring(valid.stdout)[0]
    assert [(one.get("classname"), one.get("name"), len(one)) for one in suite] == [("job.yaml", "valid", 0)]


def test_several_files_are_checked_and_one_refused_file_refuses_all(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "wrong.yaml").write_text(WRONG)

    checked = smdp_launch("validate", "job.yaml", "wrong.yaml", "none.yaml", "job.yaml")

    assert checked.returncode == ExitCode.JOB_FILE_REFUSED
    assert checked.stdout == "job.yaml: valid\nwrong.yaml: not valid\nnone.yaml: not valid\n"
    assert all(f"error[{code}]" in checked.stderr for code in ("SMDP301", "SMDP101"))
    assert smdp_launch("validate", "job.yaml", "job.yaml").returncode == ExitCode.OK


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "sarif", "--json"],
        ["--format", "sarif", "--fix"],
        ["--format", "html"],
        ["job.yaml", "other.yaml", "--json"],
        ["job.yaml", "other.yaml", "--fix"],
    ],
)
def test_options_that_exclude_each_other_are_a_usage_error(smdp_launch: Command, arguments: list[str]) -> None:
    refused = smdp_launch("validate", *arguments)
    assert refused.returncode == ExitCode.USAGE
    assert "sarif" in refused.stderr or "--format excludes" in refused.stderr


def test_fix_of_sarif_is_the_edit() -> None:
    span = Span("jobs/größe 1.yaml", 3, 7, 12, "name: smal")
    edit = Edit(span.file, 3, 7, 3, 12, "small")
    one = Diagnostic("SMDP201", "unknown name", span, "smal", "write small", edits=(edit,), also=(span,))

    (result,) = results(sarif([job_with(one)]))

    region = {"startLine": 3, "startColumn": 7, "endColumn": 12}
    change = result["fixes"][0]["artifactChanges"][0]
    assert unquote(change["artifactLocation"]["uri"]) == span.file
    assert change["replacements"] == [{"deletedRegion": region | {"endLine": 3}, "insertedContent": {"text": "small"}}]
    assert result["locations"][0]["physicalLocation"]["region"] == region
    assert [one["id"] for one in result["relatedLocations"]] == [1]


def test_every_code_of_a_report_has_a_rule_with_its_page(tmp_path: Path) -> None:
    write_job(tmp_path, WRONG)
    run: Mapping[str, Any] = json.loads(sarif([check_job(tmp_path / "job.yaml")]))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[one["ruleIndex"]]["id"] for one in run["results"]] == [one["ruleId"] for one in run["results"]]
    assert all(one["help"]["markdown"].startswith(f"# {one['id']}: ") for one in rules)


def test_diagnostic_without_a_place_is_at_the_first_line_of_its_file() -> None:
    report = json.loads(gitlab([job_with(Diagnostic("SMDP402", "no script trains"), path="jobs/one.yaml")]))
    assert [one["location"] for one in report] == [{"path": "jobs/one.yaml", "lines": {"begin": 1}}]


def test_fingerprint_stays_when_lines_are_added_above_and_differs_for_each_entry() -> None:
    def at(line: int, text: str = "smal") -> Diagnostic:
        return Diagnostic("SMDP201", "unknown name", Span("job.yaml", line, 1, 5), text)

    before = entries([job_with(at(3), at(9), at(12, "other"))])
    after = entries([job_with(at(5), at(11), at(14, "other"))])
    assert [one.fingerprint for one in before] == [one.fingerprint for one in after]
    assert len({one.fingerprint for one in before}) == 3


def test_entry_of_a_script_that_two_job_files_share_is_listed_once() -> None:
    shared = Diagnostic("SMDP402", "no script trains", Span("src/train.py", 1, 1, 2))
    both = [job_with(shared), job_with(shared, path="other.yaml")]
    assert len(entries(both)) == 1
    assert len(results(sarif(both))) == 1
    assert junit(both).count("<failure") == 2, "each job file is a suite of its own"


@given(st.text(alphabet=st.one_of(st.sampled_from(HOSTILE), st.characters()), max_size=60))
def test_any_text_keeps_every_report_readable(text: str) -> None:
    file = f"jobs/{text}.yaml"
    one = Diagnostic("SMDP201", text, Span(file, 1, 1, 1, text), text, text, Severity.WARNING)
    job = job_with(one)

    assert results(sarif([job]))[0]["message"]["text"].startswith(text)
    assert json.loads(gitlab([job]))[0]["check_name"] == "SMDP201"
    ET.fromstring(junit([job]))
    command = github([job])
    assert "\n" not in command and "\r" not in command
    properties, _, message = command.removeprefix("::warning ").partition("::")
    assert [name.partition("=")[0] for name in properties.split(",")] == ["file", "line", "col", "endColumn", "title"]
    unescaped = message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    assert unescaped.startswith(text)
