"""`download`: the results of a job, from the local cloud and from AWS."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from smdp_launch import attach
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER, find_launch, record_launch
from smdp_launch.localcloud.client.connect import object_path, private
from smdp_launch.source.scan import RESULTS_FOLDER, scan_source
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, command_in, write_job
from tests.support.jobs.archives import with_sparse_file
from tests.support.json_documents import the_document
from tests.support.services.cloud import BUCKET, Cloud, as_the_service, client_of
from tests.support.terminal import completed

MODEL = "open(os.path.join(os.environ['SM_MODEL_DIR'], 'model.txt'), 'w').write('trained')\n"
OUTPUT = "open(os.path.join(os.environ['SM_OUTPUT_DATA_DIR'], 'loss.txt'), 'w').write('0.5')\n"
FAILS = "raise ValueError('no such luck')\n"
HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]


def job_of(folder: Path) -> Path:
    """The folder that a download created."""
    (made,) = (folder / RESULTS_FOLDER).iterdir()
    return made


@pytest.fixture(scope="module")
def launched_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launched")
    write_job(folder, script=f"import os\n{MODEL}{OUTPUT}")
    assert command_in(folder)(*HERE).returncode == ExitCode.OK
    return folder


@pytest.fixture
def local_run(launched_once: Path, job_folder: Path) -> Path:
    """A folder from which one job was launched locally; its local cloud has exited."""
    shutil.copytree(launched_once, job_folder, dirs_exist_ok=True)
    return job_folder


def test_local_job_is_downloaded_after_its_local_cloud_has_exited(local_run: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("download", "--extract")
    assert ran.returncode == ExitCode.OK, ran.stderr
    folder = job_of(local_run)
    assert ran.stdout.splitlines()[0] == f"{folder.name}  completed, this machine"
    assert ran.stderr == "next: smdp-launch launch\n"
    for name in ("model.tar.gz", "output.tar.gz"):
        stored = object_path(local_run / STATE_FOLDER / "local", "bucket", f"output/{folder.name}/output/{name}")
        assert stored is not None
        assert (folder / name).read_bytes() == stored.read_bytes()
    assert (folder / "model" / "model.txt").read_text() == "trained"
    assert (folder / "output" / "loss.txt").read_text() == "0.5"
    assert {one.name for one in folder.iterdir()} == {"model", "model.tar.gz", "output", "output.tar.gz"}


@pytest.fixture
def local_cloud_stays(local_run: Path) -> Iterator[None]:
    """A running local cloud, so that the commands do not start one each."""
    with private(local_run / STATE_FOLDER / "local"):
        yield


@pytest.mark.usefixtures("local_cloud_stays")
def test_existing_files_are_replaced_only_with_force(local_run: Path, smdp_launch: Command) -> None:
    assert smdp_launch("download").returncode == ExitCode.OK
    model = job_of(local_run) / "model.tar.gz"
    downloaded = model.read_bytes()
    model.write_text("mine")
    ran = smdp_launch("download")
    assert ran.returncode == ExitCode.REFUSED
    assert "model.tar.gz exists already: --force" in ran.stderr
    assert model.read_text() == "mine"
    assert smdp_launch("download", "--force", "--extract").returncode == ExitCode.OK
    assert model.read_bytes() == downloaded
    (model.parent / "model" / "more.txt").write_text("")
    assert smdp_launch("download", "--force", "--extract").returncode == ExitCode.OK
    assert [one.name for one in (model.parent / "model").iterdir()] == ["model.txt"]


def test_json_output_matches_the_schema(local_run: Path, smdp_launch: Command) -> None:
    document = the_document(smdp_launch("download", "--json"), "download")
    name = job_of(local_run).name
    assert (document["job"], document["where"], document["status"]) == (name, "local", "Completed")
    paths = [f"{RESULTS_FOLDER}/{name}/model.tar.gz", f"{RESULTS_FOLDER}/{name}/output.tar.gz"]
    assert [one["path"] for one in document["files"]] == paths
    assert [one["bytes"] for one in document["files"]] == [(local_run / one).stat().st_size for one in paths]


@pytest.mark.runs
def test_downloaded_files_are_not_in_the_source_of_the_next_job(local_run: Path, smdp_launch: Command) -> None:
    before = scan_source(local_run).sha256
    assert smdp_launch("download").returncode == ExitCode.OK
    assert scan_source(local_run).sha256 == before


@pytest.mark.runs
def test_next_line_names_placeholders(local_run: Path, smdp_launch: Command) -> None:
    (local_run / "job.yaml").write_text(JOB.replace("123456789012", "0" * 12))
    wanted = "next: fill in image, role in job.yaml, then: smdp-launch launch\n"
    assert smdp_launch("download").stderr == wanted


@pytest.mark.runs
def test_attached_job_is_downloaded(local_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(local_run)
    seen: list[tuple[str, int]] = []
    downloaded = attach().download("out", extract=True, progress=lambda one, done: seen.append((str(one.name), done)))
    assert [one.path.name for one in downloaded.files] == ["model.tar.gz", "output.tar.gz"]
    assert downloaded.files[0].unpacked == Path("out", downloaded.job, "model")
    assert seen[-1] == ("output.tar.gz", downloaded.files[1].size)
    assert attach(downloaded.job).status() == "Completed"


def test_unknown_name_lists_jobs_of_folder_newest_first(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    for job, where in (("one-1", "local"), ("two-2", "us-east-1")):
        record_launch(job, where, "job.yaml", "0" * 64, datetime.now(timezone.utc))
    with (job_folder / STATE_FOLDER / "history.jsonl").open("a") as history:
        history.write('{"job": "cut')
    assert completed(job_folder, "download", "") == {"two-2": "us-east-1", "one-1": "local"}
    assert attach().name == "two-2"
    assert attach("one-1").where == "local"


def test_download_without_launch_needs_a_name(smdp_launch: Command, job_folder: Path) -> None:
    ran = smdp_launch("download", "--json")
    assert ran.returncode == ExitCode.REFUSED
    assert the_document(ran, "error")["message"] == "no job was launched from this folder: give the name of one"
    assert not (job_folder / STATE_FOLDER).exists()


def test_download_from_aws_without_credentials_is_refused(smdp_launch: Command, job_folder: Path) -> None:
    environment = clean_environment(HOME=str(job_folder), AWS_EC2_METADATA_DISABLED="true")
    ran = smdp_launch("download", "small-1", "--region", "us-east-1", "--json", env=environment)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "credentials" in the_document(ran, "error")["message"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A local cloud in place of AWS, for the environment variables that every AWS tool reads."""
    with private(tmp_path_factory.mktemp("service") / "state") as endpoint:
        cloud = Cloud(endpoint)
        cloud.s3.create_bucket(Bucket=BUCKET)
        yield cloud


@pytest.fixture
def on_aws(service: Cloud, tmp_path: Path) -> dict[str, str]:
    return as_the_service(service.endpoint, tmp_path)


@pytest.mark.runs
def test_job_on_aws_is_downloaded_by_the_same_command(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, job_folder: Path
) -> None:
    service.s3.put_object(Bucket=BUCKET, Key="train/part-0", Body=b"0123456789")
    write_job(job_folder, JOB.replace("instance_count: 2", "instance_count: 1"), f"import os\n{MODEL}")
    assert smdp_launch("launch", "--yes", env=on_aws).returncode == ExitCode.OK
    ran = smdp_launch("download", env=on_aws)
    assert ran.returncode == ExitCode.OK, ran.stderr
    folder = job_of(job_folder)
    assert ran.stdout.splitlines()[0] == f"{folder.name}  completed, us-east-1"
    assert ran.stderr == f"next: tar -tzf smdp-results/{folder.name}/model.tar.gz\n"
    with tarfile.open(folder / "model.tar.gz") as tar:
        assert tar.getnames() == ["model.txt"]


@pytest.mark.parametrize(
    ("name", "script", "code", "message"),
    [
        (
            "failed",
            FAILS,
            ExitCode.JOB_FAILED,
            "failed without results to download: AlgorithmError: ValueError: no such",
        ),
        pytest.param(
            "empty",
            "pass\n",
            ExitCode.REFUSED,
            "completed without results: its script wrote nothing to SM_MODEL_DIR",
            marks=pytest.mark.runs,
        ),
    ],
)
def test_job_without_results_gives_the_reason(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, name: str, script: str, code: ExitCode, message: str
) -> None:
    service.run(name, script)
    ran = smdp_launch("download", name, "--region", "us-east-1", "--json", env=on_aws)
    assert ran.returncode == code
    assert message in the_document(ran, "error")["message"]


@pytest.mark.runs
def test_output_of_failed_job_is_downloaded(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, job_folder: Path
) -> None:
    service.run("half", f"import os\n{OUTPUT}{FAILS}")
    ran = smdp_launch("download", "half", "--region", "us-east-1", env=on_aws)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.startswith("half  failed, us-east-1\noutput  smdp-results/half/output.tar.gz, ")


def test_download_of_running_job_is_refused(service: Cloud, on_aws: dict[str, str], smdp_launch: Command) -> None:
    service.start("busy", "import time\nprint('running', flush=True)\ntime.sleep(300)\n")
    service.await_log("busy", "running")
    ran = smdp_launch("download", "busy", "--region", "us-east-1", "--json", env=on_aws)
    assert ran.returncode == ExitCode.REFUSED
    message = "busy still runs (Training): download its results when it has ended"
    assert the_document(ran, "error")["message"] == message
    service.sagemaker.stop_training_job(TrainingJobName="busy")
    service.wait("busy")


def test_download_of_unknown_job_gives_the_error_of_the_service(on_aws: dict[str, str], smdp_launch: Command) -> None:
    ran = smdp_launch("download", "unknown", "--region", "us-east-1", "--json", env=on_aws)
    assert ran.returncode == ExitCode.SERVICE
    message = the_document(ran, "error")["message"]
    assert message.endswith("Requested resource not found; check the name, the region and AWS_PROFILE")


def test_unpacked_model_keeps_its_folders(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, job_folder: Path
) -> None:
    script = "import os\nos.makedirs(os.environ['SM_MODEL_DIR'] + '/a')\n" + MODEL.replace("model.txt", "a/b.txt")
    output = {"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    service.run("loose", script, OutputDataConfig=output)
    ran = smdp_launch("download", "loose", "--region", "us-east-1", env=on_aws)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert (job_folder / RESULTS_FOLDER / "loose" / "model" / "a" / "b.txt").read_text() == "trained"


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.runs)])
def test_ctrl_c_leaves_no_partial_file_and_the_same_command_continues(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, job_folder: Path, sent: signal.Signals
) -> None:
    job = f"large-{int(sent)}"
    service.run(job, f"import os\n{MODEL}")
    key = f"out/{job}/output/model.tar.gz"
    service.s3.put_object(Bucket=BUCKET, Key=key, Body=os.urandom(256 << 20))
    running = subprocess.Popen(
        [LAUNCHER, "download", job, "--region", "us-east-1", "--json"],
        cwd=job_folder,
        env=on_aws,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while (
        not (parts := list(job_folder.glob(f"{RESULTS_FOLDER}/{job}/.model.tar.gz.*.part")))
        or parts[0].stat().st_size == 0
    ):
        assert running.poll() is None, running.communicate()
        time.sleep(0.001)
    running.send_signal(sent)
    out, err = running.communicate(timeout=60)
    assert running.returncode == ExitCode.INTERRUPTED
    assert json.loads(out)["exit_code"] == ExitCode.INTERRUPTED
    assert err.split("\n") == ["run the same command again to resume the download", "", "interrupted", ""]
    assert not (job_folder / RESULTS_FOLDER / job / "model.tar.gz").exists()
    assert parts[0].stat().st_size < 256 << 20
    assert smdp_launch("download", job, "--region", "us-east-1", env=on_aws).returncode == ExitCode.OK
    downloaded = (job_folder / RESULTS_FOLDER / job / "model.tar.gz").read_bytes()
    assert downloaded == service.object(key)


def test_no_limits_option_unpacks_large_archive(
    local_run: Path, smdp_launch: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(local_run)
    launched = find_launch()
    assert launched is not None
    stored = object_path(local_run / STATE_FOLDER / "local", "bucket", f"output/{launched.job}/output/model.tar.gz")
    assert stored is not None
    with_sparse_file(stored, 3 * 10**9)
    ran = smdp_launch("download", "--extract")
    assert ran.returncode == ExitCode.REFUSED
    assert "--no-limits --force" in ran.stderr
    # The system limits the size of a file, and unpacking fails there.
    ran = smdp_launch("download", "--extract", "--no-limits", "--force", limits={resource.RLIMIT_FSIZE: 1 << 20})
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "File too large" in ran.stderr
    ran = smdp_launch("download", "--no-limits")
    assert ran.returncode == ExitCode.USAGE


def test_object_keys_outside_the_folder_are_refused(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command
) -> None:
    service.run("odd", "pass\n")
    client_of(service.endpoint, "s3").put_object(Bucket=BUCKET, Key="out/odd/output/a/../../../b", Body=b"")
    ran = smdp_launch("download", "odd", "--region", "us-east-1", env=on_aws)
    assert ran.returncode == ExitCode.REFUSED
    assert "leads out of the folder" in ran.stderr
