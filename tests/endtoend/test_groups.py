"""A job with a CPU host that reads the data: the hosts that train get their batches over the job's network."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import ROOT
from tests.endtoend.conftest import Job, job_state
from tests.support.doc_examples import blocks
from tests.support.jobs.local import launch

pytestmark = pytest.mark.torch

GOOD = ROOT / "tests" / "launcher" / "good" / "scripts" / "groups" / "train.py"
(SCRIPT,) = blocks("docs/how-to/gpus/groups.md", "python")
GROUPS = "  other_groups: {data: {instance_type: ml.c5.18xlarge, instance_count: 1}}\n"


def write(job: Job) -> None:
    job.write(
        SCRIPT,
        ("  max_run: 600\n", f"  max_run: 600\n  group_name: gpus\n{GROUPS}"),
        ('s3: "s3://bucket/train"', 's3: "s3://bucket/train", groups: [data]'),
    )
    # y = 2 a - b + 1
    points = [(a / 8, b / 8) for a in range(-8, 8) for b in range(-8, 8)]
    rows = [json.dumps([a, b, 2 * a - b + 1]) for a, b in points]
    (job.folder / "data" / "part-0").write_text("\n".join(rows) + "\n")


def test_sound_file_has_the_script_of_the_page() -> None:
    assert GOOD.read_text() == SCRIPT


def requested(job: Job) -> dict[str, object]:
    (path,) = job.folder.glob(".smdp/local/jobs/*/request.json")
    request: dict[str, object] = json.loads(Path(path).read_text())
    return request


@pytest.mark.parametrize("network", [(), ("--network", "own")], ids=["loopback", "own network"])
def test_data_host_serves_the_workers(job: Job, network: tuple[str, ...]) -> None:
    write(job)
    ran = launch(job, *network)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert re.search(r"^others +algo-3: data$", ran.stdout, re.MULTILINE)
    assert re.search(r"^algo-3 .*256 rows are served$", ran.stdout, re.MULTILINE)
    trained = re.search(r"trained on 4 workers, loss (\d+\.\d+)$", ran.stdout, re.MULTILINE)
    assert trained is not None, ran.stdout
    assert float(trained[1]) < 0.01
    assert job_state(job)["status"] == "Completed"
    assert requested(job)["ResourceConfig"] == {
        "VolumeSizeInGB": 30,
        "InstanceGroups": [
            {"InstanceGroupName": "gpus", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
            {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 1},
        ],
    }


def test_failure_of_the_data_host_ends_the_job(job: Job) -> None:
    write(job)
    (job.folder / "data" / "part-0").write_text("no row\n")
    ran = launch(job)
    assert ran.returncode == ExitCode.JOB_FAILED, ran.stdout + ran.stderr
    assert "(the script on algo-3, exit code 1)" in ran.stdout
