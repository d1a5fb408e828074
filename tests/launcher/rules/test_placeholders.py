"""Placeholders in drafts, templates and examples: `validate` and `plan` list them, `launch` refuses them with the same
list, and local runs accept them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smdp_launch import load, plan
from smdp_launch.catalog import placeholders
from smdp_launch.catalog.placeholders import is_placeholder
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import CheckedJob, check_job, check_mapping
from smdp_launch.errors import ExitCode
from tests.conftest import JOB, ROOT, Command, write_job
from tests.support.doc_examples import blocks
from tests.support.job_files.good_files import FILES

TEMPLATES = sorted((ROOT / "templates" / "jobs").glob("*.yaml"))
BUCKETS = ["channels.train.s3", "channels.test.s3", "output.s3"]
MANY = JOB.replace("123456789012", placeholders.ACCOUNT).replace("us-east-1", placeholders.REGION)
ENCRYPTED = f"""\
encryption: {{volume_key: {placeholders.KMS_KEY}, output_key: alias/ours}}
network: {{subnets: [subnet-0a1b2c3d, {placeholders.SUBNET}], security_groups: [{placeholders.SECURITY_GROUP}]}}
"""


def fields(job: CheckedJob) -> list[str]:
    return [one.field for one in job.placeholders]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_template_lists_all_placeholders(path: Path, smdp_launch: Command) -> None:
    checkpoint = ["checkpoint.s3"] if "checkpoint:" in path.read_text() else []
    wanted = ["image", "role", "region", *BUCKETS, *checkpoint]
    said = smdp_launch("validate", str(path)).stdout
    assert said == f"{path}: valid; {len(wanted)} values to fill in before AWS: {', '.join(wanted)}\n"


@pytest.mark.parametrize("engine", ["native", "smdistributed"])
def test_draft_lists_all_placeholders(engine: str, smdp_launch: Command) -> None:
    drafted = smdp_launch("init", "src", "--entry", "train.py", "--engine", engine, "--output", "draft.yaml", "--yes")
    assert drafted.returncode == ExitCode.OK, drafted.stderr
    wanted = [*(["image"] if engine == "native" else []), "role", "region", "channels.train.s3", "output.s3"]
    said = smdp_launch("validate", "draft.yaml").stdout
    assert said == f"draft.yaml: valid; {len(wanted)} values to fill in before AWS: {', '.join(wanted)}\n"
    assert f"to fill in {', '.join(wanted)}\n" in drafted.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_real_value_is_not_a_placeholder(path: Path) -> None:
    assert fields(check_job(path, environ={"TEAM": "vision"})) == []


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/ddp.md", "docs/how-to/smdistributed.md"])
def test_documented_jobs_have_placeholders_for_account_values(page: str, tmp_path: Path) -> None:
    text = blocks(page, "yaml")[0]
    (tmp_path / "job.yaml").write_text(text)
    found = fields(check_job(tmp_path / "job.yaml"))
    uris = [one for one in re.findall(r"s3://\S+", text) if "s3" in one]
    image = ["image"] if "image:" in text else []
    assert found[: len(image) + 2] == [*image, "role", "region"]
    assert len(found) == len(image) + 2 + len(uris)


@pytest.mark.parametrize(
    "value",
    [
        "arn:aws:iam::000000000000:role/training",
        "arn:aws:iam::123456789012:role/your-execution-role",
        "arn:aws:iam::123456789012:role/path/your-execution-role",
        "000000000000.dkr.ecr.us-east-1.amazonaws.com/mine:1",
        "123456789012.dkr.ecr.xx-placeholder-1.amazonaws.com/mine:1",
        "xx-placeholder-1",
        "s3://your-bucket",
        "s3://your-bucket/data",
        "arn:aws:kms:xx-placeholder-1:123456789012:key/0",
        "arn:aws:kms:us-east-1:123456789012:alias/your-key",
        "alias/your-key",
        "fs-00000000000000000",
        "subnet-00000000000000000",
        "sg-00000000000000000",
    ],
)
def test_value_containing_placeholder_is_listed(value: str) -> None:
    assert is_placeholder(value)


@pytest.mark.parametrize(
    "value",
    [
        "arn:aws:iam::123456789012:role/training",
        "arn:aws:iam::123456789012:role/not-your-execution-role-2",
        "s3://your-bucket-of-data/x",
        "s3://ours/your-bucket",
        "s3://ours/000000000000/xx-placeholder-1",
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:000000000000",
        "subnet-00000000000000001",
        "alias/your-keys",
    ],
)
def test_name_similar_to_placeholder_is_accepted(value: str) -> None:
    assert not is_placeholder(value)


def test_keys_and_networks_can_be_placeholders(tmp_path: Path) -> None:
    job = check_job(write_job(tmp_path, JOB + ENCRYPTED))
    assert fields(job) == ["network.subnets.1", "network.security_groups.0", "encryption.volume_key"]
    assert len(job.launch_problems) == 3


def test_placeholder_buckets_give_one_diagnostic_with_all_places(tmp_path: Path) -> None:
    text = JOB.replace("s3://bucket", placeholders.BUCKET)
    (one,) = check_job(write_job(tmp_path, text)).launch_problems
    assert one.message == "channels.train.s3 and output.s3 are placeholders"
    assert one.span is not None
    assert [place.line for place in (one.span, *one.also)] == [
        number for number, line in enumerate(text.splitlines(), 1) if "your-bucket" in line
    ]


def test_json_output_lists_placeholders(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(MANY)
    document = json.loads(smdp_launch("validate", "--json").stdout)
    assert document["sound"] is True
    assert [one["field"] for one in document["to_fill_in"]] == ["image", "role", "region"]
    assert document["to_fill_in"][2]["text"] == placeholders.REGION
    assert document["to_fill_in"][2]["span"]["file"] == "job.yaml"
    assert json.loads(smdp_launch("plan", "--json").stdout)["to_fill_in"] == document["to_fill_in"]


def test_plan_and_launch_list_the_same_placeholders(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(MANY)
    listed = "3 values to fill in before AWS: image, role, region"
    planned = smdp_launch("plan")
    assert planned.returncode == ExitCode.OK
    assert re.search(rf"^to fill in +{listed}$", planned.stdout, re.MULTILINE)
    refused = smdp_launch("launch", "--yes")
    assert refused.returncode == ExitCode.REFUSED
    assert f"{listed}; --local runs the job as it is" in refused.stderr
    assert smdp_launch("launch", "--dry-run").returncode == ExitCode.OK


def test_local_plan_accepts_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(tmp_path, MANY)
    monkeypatch.chdir(tmp_path)
    assert [one.field for one in plan("job.yaml").placeholders] == ["image", "role", "region"]
    assert "to fill in" not in plan("job.yaml", local=True)._repr_html_()
    job = check_job(Path("job.yaml"), LocalRequest())
    assert job.diagnostics == ()


def test_placeholder_from_python_mapping_has_no_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = load("job.yaml").to_mapping() | {"region": placeholders.REGION}
    (one,) = check_mapping(data, Path(), environ={}).placeholders
    assert (one.field, one.text, one.span) == ("region", placeholders.REGION, None)


def test_placeholder_variable_is_listed_by_name(tmp_path: Path) -> None:
    path = write_job(tmp_path, JOB.replace("us-east-1\n", "${PLACE}\n"))
    job = check_job(path, environ={"PLACE": placeholders.REGION})
    assert [one.text for one in job.placeholders] == ["${PLACE}"]
    assert placeholders.REGION not in str(job.launch_problems)
