"""The output of ``--json`` matches its published schema and is alone on standard output, for errors too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator

from smdp_launch.cli.main import COMMANDS
from smdp_launch.cli.main import smdp_launch as smdp_launch_group
from smdp_launch.errors import ExitCode
from tests.conftest import JOB, ROOT, Command, write_job
from tests.support.json_documents import SCHEMAS, the_document
from tests.support.services.registry import Server, server

__all__ = ["server"]

INVALID = JOB.replace("name: small", "nme: small").replace("ml.p4d.24xlarge", "ml.p3.24xlarge")

#: Arguments and schema, for a valid job file.
VALID = [
    (["validate"], "validate"),
    (["plan"], "plan"),
    (["plan", "--origins", "--set", "compute.max_run=700"], "plan"),
    (["local", "status"], "local"),
    (["local", "down"], "local"),
    (["explain"], "explain"),
    (["explain", "301"], "explain"),
    (["catalog", "instances"], "catalog-instances"),
    (["catalog", "instances", "--region", "us-west-2", "--policy", "strict"], "catalog-instances"),
    (["catalog", "frameworks"], "catalog-frameworks"),
    (["catalog", "images", "--region", "eu-west-1"], "catalog-images"),
    (["catalog", "images", "--version", "2.0.1", "--framework", "pytorch"], "catalog-images"),
    (["scale", "--trace", "mask-rcnn", "--instance-type", "ml.p3dn.24xlarge", "--hosts", "1,2"], "scale"),
]
REFUSED = [
    (["validate"], "validate"),
    (["validate", "nowhere.yaml"], "validate"),
    (["validate", "--set", "compute.max_rnu=1"], "validate"),
    (["plan"], "plan"),
    (["plan", "--origins"], "plan"),
    (["plan", "nowhere.yaml"], "plan"),
    (["scale"], "scale"),
    (["preflight"], "preflight"),
]
IMPOSSIBLE = [
    (["vaildate"], ExitCode.USAGE),
    (["validate", "--jsonn"], ExitCode.USAGE),
    (["validate", "one.yaml", "two.yaml"], ExitCode.USAGE),
    (["plan", "--request"], ExitCode.USAGE),
    (["plan", "--out", "nowhere/plan.json"], ExitCode.ENVIRONMENT),
    (["explain", "SMPD301"], ExitCode.USAGE),
    (["catalog", "instnces"], ExitCode.USAGE),
    (["catalog", "instances", "--policy", "lax"], ExitCode.USAGE),
    (["catalog", "frameworks", "--engine", "mpi"], ExitCode.USAGE),
    (["catalog", "images"], ExitCode.USAGE),
    (["scale"], ExitCode.USAGE),
    (["scale", "--hosts", "0"], ExitCode.USAGE),
    (["scale", "--trace", "mask-rcnn", "--cost", "copy_bite=1"], ExitCode.USAGE),
    (["scale", "--trace", "mask-rcnn", "--costs", "nowhere"], ExitCode.ENVIRONMENT),
    (["preflight", "--ignore", "E501"], ExitCode.USAGE),
    (["local", "status", "--usr"], ExitCode.USAGE),
    (["local", "down", "--grace", "-1"], ExitCode.USAGE),
    (["image", "inspect"], ExitCode.USAGE),
    (["image", "inspect", "127.0.0.1:1/nothing:here"], ExitCode.SERVICE),
    (["image", "inspect", "no image"], ExitCode.SERVICE),
]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_valid_and_documented(name: str) -> None:
    text = json.loads(SCHEMAS[name].read_text())
    Draft202012Validator.check_schema(text)
    assert text["title"]
    assert f"schemas/{name}.schema.json" in (ROOT / "docs" / "reference" / "json.md").read_text()


@pytest.mark.parametrize(("arguments", "schema"), VALID)
def test_json_output_matches_its_schema(smdp_launch: Command, arguments: list[str], schema: str) -> None:
    ran = smdp_launch(*arguments, "--json")
    assert (ran.returncode, ran.stderr) == (ExitCode.OK, "")
    the_document(ran, schema)


@pytest.mark.parametrize(("arguments", "schema"), REFUSED)
def test_invalid_job_file_gives_json_of_the_command(
    smdp_launch: Command, job_folder: Path, arguments: list[str], schema: str
) -> None:
    (job_folder / "job.yaml").write_text(INVALID)
    ran = smdp_launch(*arguments, "--json")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    document = the_document(ran, schema)
    assert [one["code"] for one in document["diagnostics"]] == re.findall(
        r"^\w+\[(SMDP\d+)\]", ran.stderr, re.MULTILINE
    )
    assert document["diagnostics"]


@pytest.mark.parametrize(("arguments", "code"), IMPOSSIBLE)
def test_other_errors_give_json_error(smdp_launch: Command, arguments: list[str], code: ExitCode) -> None:
    ran = smdp_launch(*arguments, "--json")
    assert ran.returncode == code
    document = the_document(ran, "error")
    assert document["exit_code"] == code
    assert document["message"] in ran.stderr


def test_refusal_for_placeholders_has_diagnostics_in_json(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB.replace("123456789012", "000000000000"))
    ran = smdp_launch("plan", "--out", "plan.json", "--json")
    assert ran.returncode == ExitCode.REFUSED
    document = the_document(ran, "error")
    assert {one["code"] for one in document["diagnostics"]} == {"SMDP801"}


def test_plan_with_batch_and_defaults_matches_its_schema(smdp_launch: Command, job_folder: Path) -> None:
    text = JOB.replace("epochs: 2}", "epochs: 2, lr: 0.2}").replace(
        "role: arn:aws:iam::123456789012:role/training\n", ""
    )
    batch = "batch: {global: 256, reference_size: 128, reference_learning_rate: 0.1, warmup_steps: 5}\n"
    write_job(job_folder, text + batch)
    (job_folder / "smdp-defaults.yaml").write_text("role: arn:aws:iam::123456789012:role/training\n")
    document = the_document(smdp_launch("plan", "--json"), "plan")
    assert document["batch"]["per_worker"] == 16
    assert {"job file", "project defaults", "built-in"} == {one["layer"] for one in document["origins"]}


def test_guide_names_the_commands_without_json() -> None:
    guide = (ROOT / "docs/how-to/jobs.md").read_text()
    names = [name for row in re.findall(r"^\| (`.+?) \|", guide, re.MULTILINE) for name in re.findall(r"`(\w+)", row)]
    named = [one for one in names if one in COMMANDS]
    assert {"launch", "report", "download"} <= set(named)
    without = [one for one in named if not _accepts_json(one)]
    assert f"All these commands except {', '.join(f'`{one}`' for one in without)} accept `--json`" in guide


def _accepts_json(name: str) -> bool:
    command = smdp_launch_group.get_command(click.Context(smdp_launch_group), name)
    assert command is not None
    return any("--json" in one.opts for one in command.params)


def test_inspection_matches_its_schema(smdp_launch: Command, server: Server) -> None:
    for config in ({}, {"config": {"Env": ["CUDA_VERSION=11.8.0"], "Cmd": ["train"], "Labels": {"a": "b"}}}):
        ran = smdp_launch(
            "image", "inspect", server.put_image({"os": "linux", "architecture": "amd64", **config}), "--json"
        )
        assert ran.returncode == ExitCode.OK, ran.stderr
        the_document(ran, "image-inspect")


FAILS = """\
import json, os, time
rank = int(os.environ["RANK"])
event = {"smdp_event": 1, "event": "step", "time": time.time(), "rank": rank, "step": 1, "steps": 2, "loss": 0.5}
print(json.dumps(event), flush=True)
if rank == 1:
    raise ValueError("no such luck")
time.sleep(60)
"""


def test_event_lines_of_a_job_match_their_schema(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, script=FAILS)
    ran = smdp_launch("launch", "--local", "--hosts", "2", "--workers-per-host", "1")
    assert ran.returncode == ExitCode.JOB_FAILED
    logs = (job_folder / ".smdp" / "local" / "jobs").glob("*/logs/*.jsonl")
    messages = [json.loads(line)["message"] for log in logs for line in log.read_text().splitlines()]
    events = [json.loads(one[one.index("{") :]) for one in messages if '{"smdp_event":' in one]
    assert {one["event"] for one in events} == {"step", "workers_started", "worker_exit", "resources"}
    schema = Draft202012Validator(json.loads(SCHEMAS["event"].read_text()))  # not sealed: scripts add metrics
    for event in events:
        schema.validate(event)
