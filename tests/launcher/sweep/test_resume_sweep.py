"""Resume of a sweep: a new tuning job that starts from the trials of the old one and runs the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import launches, state_folder
from smdp_launch.jobs.resume import RESUMES_TAG
from smdp_launch.localcloud.client.connect import private
from tests.conftest import JOB, Command, write_job
from tests.support.services.cloud import Cloud
from tests.support.waiting import wait_for

#: Depth 1 ends at once; without the object `open` in the channel, the others run until they are stopped.
SCRIPT = """\
import argparse, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--depth", type=int)
arguments = parser.parse_args()
print(f"loss={arguments.depth}", flush=True)
while arguments.depth > 1 and not os.path.exists(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "open")):
    time.sleep(0.05)
"""
HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]


def sweep(strategy: str = "strategy: grid", ranges: str = "categorical: {depth: [1, 2, 3]}") -> str:
    return f"""{JOB}tags: {{team: vision}}
metrics: {{loss: 'loss=([0-9.]+)'}}
sweep:
  objective: {{metric: loss, goal: minimize}}
  {strategy}
  ranges: {{{ranges}}}
"""


@pytest.fixture
def cloud(job_folder: Path) -> Iterator[Cloud]:
    with private(state_folder(job_folder) / "local") as endpoint:  # otherwise each command starts one
        yield Cloud(endpoint)


def trials(smdp_launch: Command, *name: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(smdp_launch("trials", *name, "--json").stdout)
    return made


def described(cloud: Cloud, name: str) -> dict[str, Any]:
    found = cloud.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    return dict(found)


def stopped_after_one(smdp_launch: Command) -> str:
    """The name of a launched sweep that is stopped when its first trial has completed."""
    assert smdp_launch(*HERE, "--detach").returncode == ExitCode.OK

    def second() -> bool:
        return [one["status"] for one in trials(smdp_launch)["jobs"]].count("Completed") == 1 and len(
            trials(smdp_launch)["jobs"]
        ) == 2

    wait_for(second, "the second trial")
    running = smdp_launch("resume")
    assert running.returncode == ExitCode.REFUSED
    assert "still runs (InProgress): run smdp-launch stop" in running.stderr
    smdp_launch("stop")
    wait_for(lambda: trials(smdp_launch)["status"] == "Stopped", "the stop")
    return str(trials(smdp_launch)["sweep"])


@pytest.mark.runs
def test_only_the_rest_of_a_stopped_grid_runs(cloud: Cloud, smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, sweep(), SCRIPT)
    old = stopped_after_one(smdp_launch)
    cloud.s3.put_object(Bucket="bucket", Key="train/open", Body=b"")
    shown = smdp_launch("resume", "--dry-run")
    assert shown.returncode == ExitCode.OK, shown.stderr
    assert f"from {old} (Stopped, 2 trials ended, 1 stopped, best loss 1)" in shown.stdout
    assert shown.stderr == "next: smdp-launch resume\n"
    ran = smdp_launch("resume")
    assert ran.returncode == ExitCode.OK, ran.stderr
    made = trials(smdp_launch)
    assert sorted(one["values"]["depth"] for one in made["jobs"]) == ["2", "3"]
    new = made["sweep"]
    before, after = described(cloud, old), described(cloud, new)
    assert after["WarmStartConfig"] == {
        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": old}],
        "WarmStartType": "IdenticalDataAndAlgorithm",
    }
    assert after["HyperParameterTuningJobConfig"] == before["HyperParameterTuningJobConfig"]
    own, its = after["TrainingJobDefinition"], before["TrainingJobDefinition"]
    name = {"sagemaker_job_name": json.dumps(new)}
    assert own == {**its, "StaticHyperParameters": {**its["StaticHyperParameters"], **name}}
    assert after["BestTrainingJob"]["TunedHyperParameters"] == {"depth": "2"}
    assert after["OverallBestTrainingJob"]["TunedHyperParameters"] == {"depth": "1"}
    tags = cloud.sagemaker.list_tags(ResourceArn=after["HyperParameterTuningJobArn"])["Tags"]
    assert {"Key": "team", "Value": "vision"} in tags
    assert {"Key": RESUMES_TAG, "Value": old} in tags
    launched = launches(job_folder)[-1]
    assert (launched.job, launched.resumes, launched.sweep) == (new, old, True)
    again = smdp_launch("resume", old)
    assert again.returncode == ExitCode.REFUSED
    assert f"{old} was resumed as {new} (Completed): run smdp-launch resume {new}" in again.stderr
    nothing = smdp_launch("resume")
    assert nothing.returncode == ExitCode.REFUSED
    assert "each of its 3 combinations has a result" in nothing.stderr


@pytest.mark.runs
def test_random_sweep_runs_the_trials_that_are_missing(cloud: Cloud, smdp_launch: Command, job_folder: Path) -> None:
    strategy = "strategy: random\n  trials: 2\n  parallel: 2\n  seed: 5"
    write_job(job_folder, sweep(strategy, "integer: {depth: {min: 1, max: 4}}"), SCRIPT)
    (job_folder / "data" / "open").touch()
    assert smdp_launch(*HERE).returncode == ExitCode.OK
    first = trials(smdp_launch)
    assert smdp_launch("resume", "--json").returncode == ExitCode.USAGE
    assert smdp_launch("resume").returncode == ExitCode.OK
    second = trials(smdp_launch)
    config = described(cloud, second["sweep"])["HyperParameterTuningJobConfig"]
    assert config["ResourceLimits"] == {"MaxNumberOfTrainingJobs": 2, "MaxParallelTrainingJobs": 2}
    assert config["RandomSeed"] == 6
    depths = [one["values"]["depth"] for each in (first, second) for one in each["jobs"]]
    assert sorted(depths) == ["1", "2", "3", "4"]
