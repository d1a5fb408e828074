"""`launch --local` for a user: how jobs end, the messages, and no leftovers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import LAUNCHER, ROOT, clean_environment
from tests.endtoend.conftest import Job, job_state
from tests.support import command
from tests.support.jobs.local import launch

WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"
REPORTS = """\
import os, sys
from smdp_engine import progress
print("arguments", sys.argv[1:])
for step in range(1, 5):
    progress.step(step, 4, loss=1 / step)
if os.environ["RANK"] == "0":
    progress.emit("result", accuracy=0.5)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w") as file:
        file.write("trained on " + ",".join(os.listdir(os.environ["SM_CHANNEL_TRAIN"])))
"""


def test_local_job_runs_and_writes_model(job: Job) -> None:
    job.write(REPORTS, ("{epochs: 2}", '{epochs: 2, text: "a b", flag: true}'))
    ran = launch(job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert "local run: 2 hosts x 2 workers" in ran.stdout
    lines = ran.stdout.splitlines()
    for host, rank in (("algo-1", 0), ("algo-1", 1), ("algo-2", 2), ("algo-2", 3)):
        assert f"{host}:{rank} | arguments ['--epochs', '2', '--flag', 'True', '--text', 'a b']" in lines
    statuses = re.findall(r"^ *\d+\.\d s  (\w+)", ran.stdout, re.MULTILINE)
    assert statuses == ["Pending", "Downloading", "Training", "Uploading", "Completed"]
    assert any(line.startswith("step 4/4  loss 0.25") for line in lines)  # a rate may follow
    assert "result  accuracy 0.5" in lines
    model = next(line.split()[1] for line in lines if line.startswith("model"))
    with tarfile.open(job.folder / model) as tar:
        member = tar.extractfile("model.txt")
        assert member is not None
        assert member.read() == b"trained on part-0"
    history = [json.loads(line) for line in (job.folder / ".smdp" / "history.jsonl").read_text().splitlines()]
    launched, ended = history
    assert (launched["where"], launched["job"].rsplit("-", 2)[0]) == ("local", job.name)
    assert (ended["job"], ended["ended"], ended["exit_code"]) == (launched["job"], "Completed", 0)
    assert ended["billable_seconds"] > 0


@pytest.mark.runs
def test_job_with_network_isolation_gets_its_source(job: Job) -> None:
    job.write(REPORTS, ("region: us-east-1", "region: us-east-1\nnetwork: {isolated: true}"))
    ran = launch(job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "result  accuracy 0.5" in ran.stdout.splitlines()


@pytest.mark.runs
def test_job_without_channels_runs_and_reports_no_data(job: Job) -> None:
    script = "import os\nprint('data', os.environ.get('SM_CHANNELS'), os.path.exists('/opt/ml/input/data/train'))\n"
    job.write(
        script, ('channels:\n  train: {s3: "s3://bucket/train"}\n', ""), ("local: {channels: {train: data}}\n", "")
    )
    ran = launch(job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "warning[SMDP423]" in ran.stderr
    assert ran.stdout.count("data [] False") == 4


def test_script_exception_fails_job_with_its_message(job: Job) -> None:
    job.write(
        "import os, time\nif os.environ['RANK'] == '2':\n    raise ValueError('no such digit')\ntime.sleep(300)\n"
    )
    ran = launch(job)
    assert ran.returncode == ExitCode.JOB_FAILED
    reason = next(line for line in ran.stdout.splitlines() if line.startswith("reason"))
    assert reason == "reason  AlgorithmError: ValueError: no such digit (rank 2 on algo-2, exit code 1)"
    assert job_state(job)["status"] == "Failed"


@pytest.mark.runs
def test_maximum_run_time_has_its_own_exit_code(job: Job) -> None:
    job.write(WAITS, ("max_run: 600", "max_run: 2"))
    ran = launch(job, hosts=1, workers=1)
    assert ran.returncode == ExitCode.MAX_RUN_TIME
    assert "maximum run time" in ran.stdout


@pytest.mark.runs
def test_two_jobs_run_at_once_from_one_folder(job: Job) -> None:
    job.write(REPORTS)
    launching = [LAUNCHER, "launch", "--local", "--hosts", "2", "--workers-per-host", "1"]
    both = [
        subprocess.Popen(
            launching, cwd=job.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for one in both:
        one.communicate(timeout=120)
    assert [one.returncode for one in both] == [0, 0]
    lines = [json.loads(line) for line in (job.folder / ".smdp" / "history.jsonl").read_text().splitlines()]
    assert len({one["job"] for one in lines if "where" in one}) == 2
    assert sorted(one["job"] for one in lines if "ended" in one) == sorted({one["job"] for one in lines})


@pytest.mark.runs
def test_data_option_replaces_data_of_earlier_run(job: Job) -> None:
    job.write("import os\nprint('channel', sorted(os.listdir(os.environ['SM_CHANNEL_TRAIN'])))\n")
    assert "channel ['part-0']" in launch(job, hosts=1, workers=1).stdout
    other = job.folder / "other"
    (other / "deep").mkdir(parents=True)
    (other / "deep" / "ä b").write_text("x")
    assert "channel ['deep']" in launch(job, "--data", f"train={other}", hosts=1, workers=1).stdout


def test_read_only_folder_gives_one_line_error(job: Job) -> None:
    job.write(REPORTS)
    (job.folder / ".smdp").write_text("in the way")
    ran = launch(job)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ".smdp" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.runs
@pytest.mark.parametrize(
    "setting",
    [
        {"AWS_PROFILE": "unknown"},
        {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        {"AWS_CA_BUNDLE": "/nowhere"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_local_launch_ignores_aws_settings_of_user(job: Job, setting: dict[str, str]) -> None:
    job.write(REPORTS)
    counts = ("--hosts", "1", "--workers-per-host", "1")
    ran = command.run(job.folder, "launch", "--local", *counts, env=clean_environment(**setting))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.runs
def test_local_launch_needs_no_home_folder(job: Job) -> None:
    job.write(REPORTS)
    ran = subprocess.run(
        [LAUNCHER, "launch", "--local", "--hosts", "1", "--workers-per-host", "1"],
        cwd=job.folder,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert Path(job.folder / ".smdp" / ".gitignore").read_text() == "*\n"


@pytest.mark.runs
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_no_exit_leaves_port_or_process(tmp_path: Path) -> None:
    inside = f"ip link set lo up && exec {sys.executable} -m tests.endtoend.every_ending {tmp_path}"
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", inside], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["codes"] == [ExitCode.OK, ExitCode.JOB_FAILED, ExitCode.JOB_FAILED, ExitCode.JOB_STOPPED]
    assert result["left"] == []
    assert result["ports"] == result["before"] == []
