"""A sweep from the command line on the local cloud: launch, trials, status, stop, list and the model of the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from smdp_launch.errors import ExitCode
from smdp_launch.localcloud.client.connect import private
from tests.conftest import JOB, ROOT, Command, write_job
from tests.support.services.cloud import client_of, kill
from tests.support.waiting import wait_for

SCRIPT = """\
import argparse, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--depth", type=int)
parser.add_argument("--kind", default="works")
arguments = parser.parse_args()
if arguments.kind == "fails" and arguments.depth == 2:
    sys.exit(3)
print(f"loss={(arguments.depth - 3) ** 2}", flush=True)
while arguments.kind == "waits":
    time.sleep(0.05)
open(os.path.join(os.environ["SM_MODEL_DIR"], "depth"), "w").write(str(arguments.depth))
"""
HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]


def sweep(depths: str = "[1, 2, 3]", kind: str = "works", more: str = "") -> str:
    return f"""{JOB.replace("{epochs: 2}", f"{{epochs: 2, kind: {kind}}}")}metrics: {{loss: 'loss=([0-9.]+)'}}
sweep:
  objective: {{metric: loss, goal: minimize}}
  strategy: grid
  parallel: 2
  ranges: {{categorical: {{depth: {depths}}}}}
{more}"""


def twelve() -> str:
    """A job with all fields of a trial that a local run keeps, and a sweep of 4 trials that work, 4 that wait and 4 of
    which one fails."""
    text = sweep("[1, 2, 3, 4]").replace("{depth: [1, 2, 3, 4]}", "{depth: [1, 2, 3, 4], kind: [works, fails, waits]}")
    text = text.replace(", kind: works}", "}").replace("parallel: 2", "parallel: 3")
    return f"""{text}spot: {{max_wait: 7200}}
checkpoint: {{s3: s3://example-results/checkpoints}}
environment: {{LEVEL: high}}
tags: {{team: vision}}
"""


def received(job_folder: Path, job: str) -> dict[str, Any]:
    """The CreateTrainingJob request that the local cloud got."""
    path = job_folder / ".smdp" / "local" / "jobs" / job / "request.json"
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def assert_trial_is_that_of_the_plan(
    plan: dict[str, Any], trial: dict[str, Any], request: dict[str, Any], described: dict[str, Any]
) -> None:
    """Field by field: the definition of the plan, the request of the trial, and the description of its job."""
    definition = plan["TrainingJobDefinition"]
    fields = {name: value for name, value in definition.items() if name != "StaticHyperParameters"}
    fixed = definition["StaticHyperParameters"]
    assert set(trial["values"]) == {"depth", "kind"}
    fields |= {
        "TrainingJobName": trial["job"],
        "HyperParameters": {**fixed, **trial["values"], "_tuning_objective_metric": "loss"},
    }
    assert {name: value for name, value in request.items() if name != "Tags"} == fields
    # The service answers with an empty key where the request has none.
    fields["OutputDataConfig"] = {"KmsKeyId": "", **fields["OutputDataConfig"]}
    assert {name: described[name] for name in fields} == fields


def document(smdp_launch: Command, *arguments: str) -> dict[str, object]:
    made: dict[str, object] = json.loads(smdp_launch(*arguments, "--json").stdout)
    schema = json.loads((ROOT / "docs" / "schemas" / "trials.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(made)
    return made


def test_sweep_runs_and_its_trials_are_listed(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, sweep(kind="fails"), SCRIPT)
    ran = smdp_launch(*HERE)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "Completed, 3 trials ended, 1 failed, best loss 0" in ran.stdout
    found = document(smdp_launch, "trials")
    jobs = found["jobs"]
    assert isinstance(jobs, list)
    assert [(one["values"], one["objective"], one["status"]) for one in jobs] == [
        ({"depth": "3"}, 0, "Completed"),
        ({"depth": "1"}, 4, "Completed"),
        ({"depth": "2"}, None, "Failed"),
    ]
    assert "exited with code 3" in jobs[2]["reason"]
    best = str(found["best"])
    assert best == jobs[0]["job"]
    downloaded = smdp_launch("download", best, "--extract")
    assert downloaded.returncode == ExitCode.OK, downloaded.stderr
    assert (job_folder / "smdp-results" / best / "model" / "depth").read_text() == "3"
    assert document(smdp_launch, "status") == found
    (listed,) = json.loads(smdp_launch("list", "--json").stdout)["jobs"]
    assert (listed["job"], listed["training_job_status"]) == (found["sweep"], "Completed")
    refused = smdp_launch("follow")
    assert refused.returncode == ExitCode.REFUSED
    assert f"`smdp-launch trials {found['sweep']}` lists them" in refused.stderr


@pytest.mark.runs
def test_detached_sweep_is_stopped(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, sweep(kind="waits"), SCRIPT)
    assert smdp_launch(*HERE, "--detach").returncode == ExitCode.OK
    assert json.loads(smdp_launch("list", "--json").stdout)["jobs"][0]["training_job_status"] == "InProgress"

    def trials() -> list[dict[str, str]]:
        found = document(smdp_launch, "trials")["jobs"]
        return found if isinstance(found, list) and len(found) == 2 else []

    for one in wait_for(trials, "two trials"):
        wait_for(lambda job=one["job"]: "loss=" in smdp_launch("logs", job).stdout, "the first value")  # type: ignore[misc]
    assert "Stopping" in smdp_launch("stop").stdout
    stopped = wait_for(lambda: (made := document(smdp_launch, "trials"))["status"] == "Stopped" and made, "the stop")
    assert [one["status"] for one in stopped["jobs"]] == ["Stopped", "Stopped"]
    assert "Stopped" in smdp_launch("stop").stdout


@pytest.mark.runs
def test_twelve_trials_equal_the_plan_and_each_end_is_shown(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, twelve(), SCRIPT)
    planned = json.loads(smdp_launch(*HERE, "--dry-run", "--json").stdout)["tuning"]
    assert smdp_launch(*HERE, "--detach").returncode == ExitCode.OK
    ended = {"killed": set[str](), "stopped": set[str]()}

    def end_waiting(trial: dict[str, Any]) -> None:
        """Kill the supervisors of the first two trials that wait, and stop the others."""
        job = trial["job"]
        if job in ended["killed"] | ended["stopped"] or "loss=" not in smdp_launch("logs", job).stdout:
            return
        if len(ended["killed"]) < 2:
            ended["killed"].add(job)
            path = job_folder / ".smdp" / "local" / "jobs" / job / "supervisor.pid"
            kill(json.loads(path.read_text(encoding="utf-8"))["pid"])
        else:
            ended["stopped"].add(job)
            smdp_launch("stop", job)

    def whole() -> dict[str, Any] | None:
        found: dict[str, Any] = document(smdp_launch, "trials")
        for one in found["jobs"]:
            if one["status"] == "InProgress" and one["values"]["kind"] == '"waits"':
                end_waiting(one)
        return found if found["status"] in ("Completed", "Failed", "Stopped") else None

    found = wait_for(whole, "the end of the twelve trials")
    assert (found["status"], len(found["jobs"])) == ("Completed", 12)
    name = found["sweep"]
    plan = json.loads(json.dumps(planned).replace(planned["HyperParameterTuningJobName"], name))
    assert plan["TrainingJobDefinition"].keys() >= {"EnableManagedSpotTraining", "CheckpointConfig", "Environment"}
    with private(job_folder / ".smdp" / "local") as endpoint:
        client = client_of(endpoint, "sagemaker")
        for one in found["jobs"]:
            described = client.describe_training_job(TrainingJobName=one["job"])
            assert_trial_is_that_of_the_plan(plan, one, received(job_folder, one["job"]), described)
            tags = client.list_tags(ResourceArn=described["TrainingJobArn"])["Tags"]
            assert tags == plan["Tags"] == received(job_folder, one["job"])["Tags"]
    ends = {one["job"]: (one["status"], one["reason"] or "") for one in found["jobs"]}
    failing = [one["job"] for one in found["jobs"] if one["values"] == {"depth": "2", "kind": '"fails"'}]
    assert {job for job, (status, _) in ends.items() if status == "Failed"} == {*failing, *ended["killed"]}
    assert {job for job, (status, _) in ends.items() if status == "Stopped"} == ended["stopped"]
    assert "exited with code 3" in ends[failing[0]][1]
    assert all("supervisor died" in ends[job][1] for job in ended["killed"])
    shown = smdp_launch("trials").stdout
    assert all(f"{job} failed: " in shown for job in (failing[0], *ended["killed"]))
    assert "Completed, 12 trials ended, 3 failed, 2 stopped, best loss 0" in shown


@pytest.mark.runs
def test_failed_sweep_has_the_exit_code_of_a_failed_job(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, sweep("[2]", "fails"), SCRIPT)
    ran = smdp_launch(*HERE, "--set", "sweep.parallel=1")
    assert ran.returncode == ExitCode.JOB_FAILED
    assert "No training job succeeded after 1 attempts" in ran.stdout


def test_option_for_one_job_is_refused_before_anything_starts(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, sweep(), SCRIPT)
    ran = smdp_launch(*HERE, "--json")
    assert ran.returncode == ExitCode.USAGE
    assert "--json is for one job" in ran.stderr
    assert not (job_folder / ".smdp" / "history.jsonl").exists()


def test_plan_of_a_local_run_names_the_strategy_that_is_not_simulated(smdp_launch: Command, job_folder: Path) -> None:
    more = "  trials: 2\n"
    text = sweep(more=more).replace("strategy: grid", "strategy: bayesian")
    write_job(job_folder, text, SCRIPT)
    assert "sweep.strategy bayesian: the values of trials are drawn at random" in " ".join(
        smdp_launch(*HERE, "--dry-run").stdout.split()
    )
