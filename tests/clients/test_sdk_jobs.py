"""The SageMaker SDK's estimator trains in the local cloud, with only the environment variables that point to it.

`make test-clients` makes the SDK's environment and runs this there.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from smdp_launch.testing import LocalCloud, local_cloud
from tests.support.waiting import wait_for

# Ignore the SDK's own warnings.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

TRAINS = """\
import os
for step in range(3):
    print("step", step, "on", os.environ["SM_CURRENT_HOST"], "loss=%.2f" % (1 / (step + 1)), flush=True)
numbers = open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "numbers.txt")).read()
with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w") as file:
    file.write(f"trained on {numbers}")
"""


@pytest.fixture
def cloud() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="mine")
        s3.put_object(Bucket="mine", Key="train/numbers.txt", Body=b"1 2 3")
        yield made


def estimator(cloud: LocalCloud, folder: Path, script: str, hosts: int = 2, **more: Any) -> Any:
    from sagemaker.estimator import Estimator
    from sagemaker.session import Session

    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(script)
    return Estimator(
        image_uri="image",
        role=cloud.role,
        instance_count=hosts,
        instance_type="ml.p4d.24xlarge",
        entry_point="train.py",
        source_dir=str(folder / "src"),
        output_path="s3://mine/output",
        code_location="s3://mine/code",
        environment={"SMDP_WORKERS_PER_HOST": "1"},
        sagemaker_session=Session(default_bucket="mine"),
        **more,
    )


def test_fit_shows_every_line_and_returns_model(
    cloud: LocalCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = estimator(cloud, tmp_path, TRAINS, metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}])
    made.fit({"train": "s3://mine/train"}, wait=True, logs="All")
    shown = capsys.readouterr().out
    for host in ("algo-1", "algo-2"):
        lines = [line for line in shown.splitlines() if f"on {host} " in line]
        assert [line.partition("step ")[2][0] for line in lines] == ["0", "1", "2"], shown
    bucket, _, key = made.model_data.removeprefix("s3://").partition("/")
    packed = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.extractfile("model.txt")
        assert member is not None
        assert member.read() == b"trained on 1 2 3"
    described = made.latest_training_job.describe()
    assert described["FinalMetricDataList"][0]["MetricName"] == "loss"
    assert described["BillableTimeInSeconds"] > 0


def test_analytics_shows_metrics_of_job(cloud: LocalCloud, tmp_path: Path) -> None:
    from sagemaker.analytics import TrainingJobAnalytics

    made = estimator(cloud, tmp_path, TRAINS, metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}])
    made.fit({"train": "s3://mine/train"}, wait=True, logs=False)
    name = made.latest_training_job.name
    for chosen in ({}, {"metric_names": ["loss"]}):
        frame = TrainingJobAnalytics(name, **chosen, period=1).dataframe()
        assert set(frame["metric_name"]) == {"loss"}
        # The values of both hosts in one second are averaged, so each is between the first and the last.
        assert 0.33 <= frame["value"].min() <= frame["value"].max() <= 1


HALF = 25_000  # lines, more than a page has
COUNTS = f"""\
import os, sys, time
def count(numbers):
    for number in numbers:
        print("line", os.environ["SM_CURRENT_HOST"], number)
    sys.stdout.flush()
count(range({HALF}))
deadline = time.monotonic() + 300
while not os.path.exists(os.path.join(os.environ["SM_OUTPUT_DIR"], "go")):
    assert time.monotonic() < deadline, "the first half was not read"
    time.sleep(0.1)
count(range({HALF}, {2 * HALF}))
"""


@pytest.mark.timeout(900)
def test_long_log_shows_every_line_once(cloud: LocalCloud, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The SDK continues at the time of the last line of each stream, and takes an empty page for the end. A host writes
    its second half once the SDK continues behind the first."""

    def release(params: dict[str, Any], **_: object) -> None:
        job, _, stream = params["logStreamName"].partition("/")
        lines = (cloud.state / "jobs" / job / "logs" / f"{stream}.jsonl").read_text().splitlines()
        counted = [line for line in lines if "line algo-" in line]
        if len(counted) >= HALF and params["startTime"] >= json.loads(counted[HALF - 1])["timestamp"]:
            output = cloud.state / "jobs" / job / "hosts" / stream.rpartition("-")[0] / "ml" / "output"
            if output.is_dir():  # it is deleted when the job has ended
                (output / "go").touch()

    made = estimator(cloud, tmp_path, COUNTS, hosts=4)
    made.sagemaker_session.boto_session.events.register("provide-client-params.logs.GetLogEvents", release)
    made.fit({"train": "s3://mine/train"}, wait=True, logs="All")
    shown = re.findall(r"line (algo-\d) (\d+)$", capsys.readouterr().out, re.MULTILINE)
    for host in ("algo-1", "algo-2", "algo-3", "algo-4"):
        assert [int(number) for name, number in shown if name == host] == list(range(2 * HALF))
    assert len(shown) == 8 * HALF


def test_attach_finds_job_by_name(cloud: LocalCloud, tmp_path: Path) -> None:
    from sagemaker.estimator import Estimator
    from sagemaker.session import Session

    made = estimator(cloud, tmp_path, TRAINS)
    made.fit({"train": "s3://mine/train"}, wait=False)
    name = made.latest_training_job.name
    found = Estimator.attach(name, sagemaker_session=Session(default_bucket="mine"))
    assert found.latest_training_job.name == name
    assert found.model_data == made.model_data
    assert found.model_data.endswith(f"{name}/output/model.tar.gz")


def test_stopped_job_is_reported_as_stopped(cloud: LocalCloud, tmp_path: Path) -> None:
    from sagemaker.exceptions import UnexpectedStatusException

    made = estimator(cloud, tmp_path, "import time\nprint('asleep', flush=True)\ntime.sleep(600)\n")
    made.fit({"train": "s3://mine/train"}, wait=False)
    job = made.latest_training_job
    logs = cloud.state / "jobs" / job.name / "logs"
    wait_for(lambda: any("asleep" in path.read_text() for path in logs.glob("*.jsonl")), "the script's first line")
    stopping = threading.Timer(1, job.stop)
    stopping.start()
    try:
        job.wait(logs=False)
    except UnexpectedStatusException as error:
        assert error.actual_status == "Stopped"
    stopping.join()
    assert job.describe()["TrainingJobStatus"] == "Stopped"


def test_failed_job_is_reported_with_its_reason(cloud: LocalCloud, tmp_path: Path) -> None:
    from sagemaker.exceptions import UnexpectedStatusException

    made = estimator(cloud, tmp_path, "raise ValueError('no such luck')\n")
    with pytest.raises(UnexpectedStatusException, match="no such luck") as failed:
        made.fit({"train": "s3://mine/train"})
    assert failed.value.actual_status == "Failed"
