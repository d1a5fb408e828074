"""The schema for editors matches the schema of the launcher."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

from smdp_launch.checking.job import check_job
from smdp_launch.jobfile.model.editor import editor_schema
from smdp_launch.jobfile.model.spec import EngineOptions
from tests.conftest import JOB, ROOT, Command, write_job

VALIDATOR = Draft7Validator(editor_schema())


def values(text: str) -> Any:
    return YAML(typ="safe").load(text)


def test_the_schema_and_the_table_of_keys_in_the_docs_are_up_to_date() -> None:
    command = [sys.executable, ROOT / "tools" / "job_file_reference.py", "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_the_schema_is_sound_draft_7() -> None:
    Draft7Validator.check_schema(editor_schema())
    assert "$defs" not in json.dumps(editor_schema())


@pytest.mark.parametrize("path", sorted((ROOT / "templates" / "jobs").glob("*.yaml")), ids=lambda path: path.name)
def test_template_matches_the_schema_in_its_first_line(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    named = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    assert json.loads(named.read_text()) == editor_schema()
    assert list(VALIDATOR.iter_errors(values(path.read_text()))) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("max_run: 600", "max_run: soon"),
        ("max_run: 600", "max_runs: 600"),
        ("instance_count: 2", "instance_count: 0"),
        ("engine: native", "engine: nativ"),
        ('"s3://bucket/train"', "bucket/train"),
        ("name: small", "name: my_job"),
        ('version: "2.0.1"', "version: 2.0"),
        ("role: arn:aws:iam::123456789012:role/training", "role: training"),
        ("local: {channels: {train: data}}", "local: {channels: {tr ain: data}}"),
    ],
)
def test_editor_schema_and_validate_report_the_same_errors(tmp_path: Path, before: str, after: str) -> None:
    text = JOB.replace(before, after)
    assert text != JOB
    assert list(VALIDATOR.iter_errors(values(text)))
    assert check_job(write_job(tmp_path, text)).diagnostics


def test_editor_schema_accepts_variables_and_values_of_defaults_files() -> None:
    text = JOB.replace("max_run: 600", "max_run: ${LIMIT}").replace("bucket/output", "${BUCKET}/output")
    text = text.replace("region: us-east-1\n", "").replace("role: arn:aws:iam::123456789012:role/training\n", "")
    assert list(VALIDATOR.iter_errors(values(text))) == []


def test_the_command_prints_the_schema_or_writes_it(smdp_launch: Command, job_folder: Path) -> None:
    printed = smdp_launch("schema")
    assert json.loads(printed.stdout) == editor_schema()
    written = smdp_launch("schema", "--output", "job.schema.json")
    assert written.stdout == ""
    assert (job_folder / "job.schema.json").read_text() == printed.stdout
    refused = smdp_launch("schema", "--output", "no/such/folder.json")
    assert refused.returncode == 4
    assert "cannot be written" in refused.stderr


def test_validate_json_is_one_object(smdp_launch: Command, job_folder: Path) -> None:
    sound = smdp_launch("validate", "--json")
    assert sound.returncode == 0
    assert json.loads(sound.stdout) == {
        "validation": 1,
        "job_file": "job.yaml",
        "sound": True,
        "to_fill_in": [],
        "diagnostics": [],
    }
    (job_folder / "job.yaml").write_text(JOB.replace("max_run: 600", "max_run: soon"))
    wrong = smdp_launch("validate", "--json")
    assert wrong.returncode == 3
    (found,) = json.loads(wrong.stdout)["diagnostics"]
    assert (found["code"], found["span"]["line"], found["text"]) == ("SMDP203", 13, "soon")


def test_the_engine_knows_every_engine_option_by_its_name() -> None:
    table = (ROOT / "native" / "engine" / "base" / "options.cc").read_text()
    known = set(re.findall(r'Row\{\{"SMDP_(\w+)"', table))
    ours = set(EngineOptions.model_fields) - {"custom_mpi_options"}
    assert {name.upper() for name in ours} <= known


def keys_without_text(node: Any, above: str = "") -> list[str]:
    """The keys whose hover would be empty in an editor."""
    found = []
    for name, one in node.get("properties", {}).items():
        found += [] if one.get("description") else [f"{above}{name}"]
        found += keys_without_text(one, f"{above}{name}.")
    return found


def test_every_key_has_a_text_for_editors() -> None:
    schema = editor_schema()
    assert keys_without_text(schema) == []
    assert [name for name, one in schema["definitions"].items() if keys_without_text(one)] == []
    engine = schema["properties"]["engine"]
    assert engine["markdownDescription"].startswith("`native`: ")
    assert "`NAME-<UTC time>-<4 hex>`" in schema["properties"]["name"]["markdownDescription"]
