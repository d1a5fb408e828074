"""Tuning jobs with a stock client: real trials, their results, and their end."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.client import shared
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.services.cloud import BUCKET, ENDED, Cloud, kill
from tests.support.waiting import wait_for

#: Prints the objective for each epoch. A trial with `fails` fails, one with `waits` runs until it is stopped.
SCRIPT = """\
import argparse, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("-x", type=float)
parser.add_argument("--kind", default="works")
parser.add_argument("--epochs", type=int)
arguments = parser.parse_args()
if arguments.kind == "fails":
    sys.exit(3)
for epoch in range(arguments.epochs):
    print(f"loss={(arguments.x - 0.5) ** 2 + 1 / (epoch + 1)}", flush=True)
while arguments.kind == "waits":
    time.sleep(0.05)
"""


def tuning(cloud: Cloud, name: str, ranges: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The request. `changes` of the config, and `definition` for changes of the trials."""
    job = cloud.request("unused", SCRIPT)
    definition = {key: value for key, value in job.items() if key not in ("TrainingJobName", "HyperParameters")}
    definition["StaticHyperParameters"] = {**job["HyperParameters"], "epochs": "2"}
    regex = [{"Name": "loss", "Regex": "loss=([0-9.e-]+)"}]
    definition["AlgorithmSpecification"] = {**job["AlgorithmSpecification"], "MetricDefinitions": regex}
    definition |= changes.pop("definition", {})
    tags, warm = changes.pop("tags", []), changes.pop("warm", {})
    config = {
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 3, "MaxParallelTrainingJobs": 2},
        "ParameterRanges": ranges,
        "RandomSeed": 5,
        **changes,
    }
    return {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": config,
        "TrainingJobDefinition": definition,
        "Tags": tags,
        **warm,
    }


def numbers(low: str = "0.0", high: str = "1.0") -> dict[str, Any]:
    return {"ContinuousParameterRanges": [{"Name": "x", "MinValue": low, "MaxValue": high}]}


def lists(**values: list[str]) -> dict[str, Any]:
    return {"CategoricalParameterRanges": [{"Name": name, "Values": one} for name, one in values.items()]}


def describe(cloud: Cloud, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = cloud.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    return answer


def trials(cloud: Cloud, name: str, **options: Any) -> list[dict[str, Any]]:
    listed = cloud.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, MaxResults=100, **options
    )
    return list(listed["TrainingJobSummaries"])


def wait(cloud: Cloud, name: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        answer = describe(cloud, name)
        return answer if answer["HyperParameterTuningJobStatus"] in ENDED else None

    return wait_for(ended, f"the end of tuning job {name}")  # type: ignore[no-any-return]


def run(cloud: Cloud, request: dict[str, Any]) -> dict[str, Any]:
    cloud.sagemaker.create_hyper_parameter_tuning_job(**request)
    return wait(cloud, request["HyperParameterTuningJobName"])


def test_trials_run_and_the_best_one_is_reported(cloud: Cloud) -> None:
    tags = [{"Key": "team", "Value": "vision"}]
    request = tuning(cloud, "three", numbers(), tags=tags)
    described = run(cloud, request)
    assert described["HyperParameterTuningJobStatus"] == "Completed", [
        one.get("FailureReason") for one in trials(cloud, described["HyperParameterTuningJobName"])
    ]
    assert described["TrainingJobStatusCounters"]["Completed"] == 3
    assert described["ObjectiveStatusCounters"] == {"Succeeded": 3, "Pending": 0, "Failed": 0}
    assert described["HyperParameterTuningJobConfig"] == request["HyperParameterTuningJobConfig"]
    done = trials(cloud, "three", SortBy="FinalObjectiveMetricValue", SortOrder="Ascending")
    values = {}
    for one in done:
        metric = one["FinalHyperParameterTuningJobObjectiveMetric"]
        # The last value of the log, after the second epoch.
        assert metric["Value"] == pytest.approx((float(one["TunedHyperParameters"]["x"]) - 0.5) ** 2 + 0.5, rel=1e-5)
        values[one["TrainingJobName"]] = metric["Value"]
    assert list(values.values()) == sorted(values.values())
    assert described["BestTrainingJob"]["TrainingJobName"] == min(values, key=values.__getitem__)
    for one in done:
        job = cloud.describe(one["TrainingJobName"])
        assert job["TuningJobArn"] == described["HyperParameterTuningJobArn"]
        definition = request["TrainingJobDefinition"]
        expected = {**definition["StaticHyperParameters"], **one["TunedHyperParameters"]}
        assert job["HyperParameters"] == {**expected, "_tuning_objective_metric": "loss"}
        same = ("RoleArn", "AlgorithmSpecification", "ResourceConfig", "StoppingCondition", "Environment")
        assert {name: job[name] for name in same} == {name: definition[name] for name in same}
        assert cloud.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"] == tags


def test_grid_has_one_trial_for_each_combination(cloud: Cloud) -> None:
    request = tuning(cloud, "grid", lists(x=["0.25", "0.5"]), Strategy="Grid")
    request["HyperParameterTuningJobConfig"]["ResourceLimits"] = {"MaxParallelTrainingJobs": 2}
    described = run(cloud, request)
    assert described["BestTrainingJob"]["TunedHyperParameters"] == {"x": "0.5"}
    assert [one["TunedHyperParameters"] for one in trials(cloud, "grid")] == [{"x": "0.25"}, {"x": "0.5"}]


def test_stop_ends_the_trials_and_starts_no_more(cloud: Cloud) -> None:
    request = tuning(cloud, "stopped", lists(x=["1", "2", "3"], kind=["waits"]))
    cloud.sagemaker.create_hyper_parameter_tuning_job(**request)
    running = wait_for(lambda: len(trials(cloud, "stopped")) == 2 and trials(cloud, "stopped"), "two trials")
    for one in running:
        cloud.await_log(one["TrainingJobName"], "loss=0.75" if one["TunedHyperParameters"]["x"] == "1" else "loss=")
    cloud.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="stopped")
    described = wait(cloud, "stopped")
    assert described["HyperParameterTuningJobStatus"] == "Stopped"
    assert described["TrainingJobStatusCounters"]["Stopped"] == 2
    assert [one["TrainingJobStatus"] for one in trials(cloud, "stopped")] == ["Stopped", "Stopped"]
    with pytest.raises(ClientError, match="is in status Stopped"):
        cloud.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="stopped")


def test_tuning_job_without_any_result_fails_with_a_reason(cloud: Cloud) -> None:
    limits = {"MaxNumberOfTrainingJobs": 2, "MaxParallelTrainingJobs": 2}
    request = tuning(cloud, "failing", lists(x=["1", "2"], kind=["fails"]), ResourceLimits=limits)
    described = run(cloud, request)
    assert described["HyperParameterTuningJobStatus"] == "Failed"
    assert described["FailureReason"].startswith("No training job succeeded after 2 attempts.")
    assert "BestTrainingJob" not in described
    assert all("exited with code 3" in one["FailureReason"] for one in trials(cloud, "failing"))


@pytest.mark.runs
def test_twelve_trials_of_which_some_fail_or_are_killed(cloud: Cloud) -> None:
    kinds = ["works", "fails", "waits"]
    combined = lists(x=["0.1", "0.2", "0.3", "0.4"], kind=kinds)
    request = tuning(cloud, "twelve", combined, Strategy="Grid")
    request["HyperParameterTuningJobConfig"]["ResourceLimits"] = {"MaxParallelTrainingJobs": 3}
    cloud.sagemaker.create_hyper_parameter_tuning_job(**request)
    killed: set[str] = set()
    most = 0

    def ended() -> dict[str, Any] | None:
        nonlocal most
        found = trials(cloud, "twelve")
        most = max(most, sum(one["TrainingJobStatus"] not in ENDED for one in found))
        for one in found:
            name, waits = one["TrainingJobName"], one["TunedHyperParameters"]["kind"] == "waits"
            if waits and name not in killed and any("loss=" in line for line in cloud.log(name)):
                killed.add(name)
                if len(killed) <= 2:
                    kill(cloud.supervisor(name))
                else:
                    cloud.sagemaker.stop_training_job(TrainingJobName=name)
        answer = describe(cloud, "twelve")
        return answer if answer["HyperParameterTuningJobStatus"] in ENDED else None

    described = wait_for(ended, "the end of the twelve trials")
    assert most == 3
    assert described["HyperParameterTuningJobStatus"] == "Completed", [
        one.get("FailureReason") for one in trials(cloud, described["HyperParameterTuningJobName"])
    ]
    # Four fail by themselves, two are killed, two are stopped.
    counters = {"Completed": 4, "InProgress": 0, "RetryableError": 0, "NonRetryableError": 6, "Stopped": 2}
    assert described["TrainingJobStatusCounters"] == counters
    assert described["BestTrainingJob"]["TunedHyperParameters"] == {"x": "0.4", "kind": "works"}
    by_status = {status: trials(cloud, "twelve", StatusEquals=status) for status in ENDED}
    assert sum("supervisor died" in one["FailureReason"] for one in by_status["Failed"]) == 2
    assert all(one["ObjectiveStatus"] == "Succeeded" for one in by_status["Stopped"])


@pytest.mark.runs
def test_early_stopping_ends_a_trial_that_is_worse_than_the_median(cloud: Cloud) -> None:
    ranges = lists(x=["0.5", "0.6", "0.7", "9.0"], kind=["works"])
    request = tuning(cloud, "early", ranges, Strategy="Grid", TrainingJobEarlyStoppingType="Auto")
    request["HyperParameterTuningJobConfig"]["ResourceLimits"] = {"MaxParallelTrainingJobs": 1}
    script = SCRIPT.replace('while arguments.kind == "waits"', "while arguments.x > 1")
    submitted = request["TrainingJobDefinition"]["StaticHyperParameters"]
    submitted["sagemaker_submit_directory"] = f'"{cloud.put_script(script)}"'
    described = run(cloud, request)
    assert (
        described["TrainingJobStatusCounters"] | {"Completed": 3, "Stopped": 1}
        == described["TrainingJobStatusCounters"]
    )
    assert described["HyperParameterTuningJobStatus"] == "Completed", [
        one.get("FailureReason") for one in trials(cloud, described["HyperParameterTuningJobName"])
    ]


@pytest.mark.runs
def test_target_ends_the_tuning_job(cloud: Cloud) -> None:
    ranges = lists(x=["0.5", "0.6", "0.7"])
    request = tuning(
        cloud, "target", ranges, Strategy="Grid", TuningJobCompletionCriteria={"TargetObjectiveMetricValue": 0.5}
    )
    request["HyperParameterTuningJobConfig"]["ResourceLimits"] = {"MaxParallelTrainingJobs": 1}
    assert run(cloud, request)["HyperParameterTuningJobStatus"] == "Completed"
    assert [one["TunedHyperParameters"]["x"] for one in trials(cloud, "target")] == ["0.5"]


def test_killed_server_and_killed_supervisor(state_dir: Any) -> None:
    cloud = Cloud(shared.up(state_dir))
    cloud.s3.create_bucket(Bucket=BUCKET)
    cloud.sagemaker.create_hyper_parameter_tuning_job(**tuning(cloud, "lives", numbers()))
    wait_for(lambda: trials(cloud, "lives"), "a trial")
    kill(cloud.endpoint.pid)
    cloud = Cloud(shared.up(state_dir))
    assert wait(cloud, "lives")["TrainingJobStatusCounters"]["Completed"] == 3
    cloud.sagemaker.create_hyper_parameter_tuning_job(**tuning(cloud, "dies", lists(x=["1", "2", "3"], kind=["waits"])))
    running = wait_for(lambda: len(trials(cloud, "dies")) == 2 and trials(cloud, "dies"), "two trials")
    for one in running:
        cloud.await_log(one["TrainingJobName"], "loss=")
    kill(int((state_dir / "tunings" / "dies" / "supervisor.pid").read_text().split(":")[1].strip(" }")))
    described = wait(cloud, "dies")
    assert described["HyperParameterTuningJobStatus"] == "Failed"
    assert "supervisor died" in described["FailureReason"]
    for one in running:
        assert cloud.wait(one["TrainingJobName"])["TrainingJobStatus"] == "Stopped"
    shared.down(state_dir)
    assert_nothing_runs(str(state_dir))


def test_down_ends_a_tuning_job(state_dir: Any) -> None:
    cloud = Cloud(shared.up(state_dir))
    cloud.s3.create_bucket(Bucket=BUCKET)
    cloud.sagemaker.create_hyper_parameter_tuning_job(**tuning(cloud, "down", lists(x=["1", "2", "3"], kind=["waits"])))
    wait_for(lambda: len(trials(cloud, "down")) == 2, "two trials")
    assert "tuning/down" in shared.status(state_dir).running
    assert "tuning/down" in shared.down(state_dir, grace=0)
    assert_nothing_runs(str(state_dir))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Strategy": "Grid"}, "Grid search supports only categorical"),
        ({"ParameterRanges": numbers("1", "1")}, "must be less than its MaxValue"),
        ({"ParameterRanges": numbers("a", "1")}, "are not numbers"),
        ({"ParameterRanges": {}}, "At least one hyperparameter range"),
        ({"ParameterRanges": lists(epochs=["1", "2"])}, "given more than once"),
        (
            {"HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "no"}},
            "A metric is required for this",
        ),
        ({"ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 2}}, "must not be greater"),
        ({"ResourceLimits": {"MaxParallelTrainingJobs": 2}}, "MaxNumberOfTrainingJobs must be provided"),
        ({"Strategy": "Hyperband", "TrainingJobEarlyStoppingType": "Auto"}, "must be Off"),
        ({"definition": {"OutputDataConfig": {"S3OutputPath": "s3://B/x"}}}, "Invalid bucket name"),
        ({"definition": {"StoppingCondition": {"MaxRuntimeInSeconds": 10**8}}}, "Invalid MaxRuntimeInSeconds"),
        (
            {
                "warm": {
                    "WarmStartConfig": {
                        "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "nothing"}],
                        "WarmStartType": "TransferLearning",
                    }
                }
            },
            "can't find a tuning job",
        ),
    ],
)
def test_refused_request_creates_nothing(cloud: Cloud, change: dict[str, Any], message: str) -> None:
    request = tuning(cloud, "refused", **{"ranges": numbers(), **_ranges(change)})
    with pytest.raises(ClientError, match=message):
        cloud.sagemaker.create_hyper_parameter_tuning_job(**request)
    assert not (cloud.state_dir / "tunings" / "refused").exists()


def _ranges(change: dict[str, Any]) -> dict[str, Any]:
    return {("ranges" if name == "ParameterRanges" else name): value for name, value in change.items()}


def test_tuning_jobs_are_listed_and_tagged(cloud: Cloud) -> None:
    limits = {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1}
    described = run(cloud, tuning(cloud, "listed", numbers(), ResourceLimits=limits))
    arn = described["HyperParameterTuningJobArn"]
    cloud.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
    assert cloud.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "b"}]
    (one,) = cloud.sagemaker.list_hyper_parameter_tuning_jobs(NameContains="listed")["HyperParameterTuningJobSummaries"]
    assert (one["Strategy"], one["ResourceLimits"]) == ("Random", limits)
    with pytest.raises(ClientError, match="must be unique"):
        cloud.sagemaker.create_hyper_parameter_tuning_job(**tuning(cloud, "listed", numbers()))
