"""What a job left comes here whole or not at all, from the local cloud as from the service."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from smdp_launch import EnvironmentProblem, Refused, ServiceProblem, attach
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER, find_launch, remember
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from smdp_launch.jobs.transfer.fetch import fetch, publish
from smdp_launch.jobs.transfer.results import Result
from smdp_launch.jobs.transfer.unpack import unpack
from smdp_launch.localcloud.client.connect import object_path, private
from smdp_launch.request.names import S3Location
from smdp_launch.source.scan import RESULTS_FOLDER, scan_source
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, command_in, write_job
from tests.launcher.cli.test_completion import completed
from tests.launcher.cli.test_json_documents import the_document
from tests.support.services.cloud import BUCKET, Cloud, as_the_service, client_of
from tests.support.small_disk import mounted

MODEL = "open(os.path.join(os.environ['SM_MODEL_DIR'], 'model.txt'), 'w').write('trained')\n"
OUTPUT = "open(os.path.join(os.environ['SM_OUTPUT_DATA_DIR'], 'loss.txt'), 'w').write('0.5')\n"
FAILS = "raise ValueError('no such luck')\n"
HERE = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]


def job_of(folder: Path) -> Path:
    """The folder that a download made."""
    (made,) = (folder / RESULTS_FOLDER).iterdir()
    return made


@pytest.fixture(scope="module")
def launched_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launched")
    write_job(folder, script=f"import os\n{MODEL}{OUTPUT}")
    assert command_in(folder)(*HERE).returncode == ExitCode.OK
    return folder


@pytest.fixture
def ran_here(launched_once: Path, job_folder: Path) -> Path:
    """A folder from which one job was launched on this machine; its local cloud has ended."""
    shutil.copytree(launched_once, job_folder, dirs_exist_ok=True)
    return job_folder


def test_a_job_of_this_machine_is_fetched_after_its_local_cloud_has_ended(ran_here: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("download", "--extract")
    assert ran.returncode == ExitCode.OK, ran.stderr
    folder = job_of(ran_here)
    assert ran.stdout.splitlines()[0] == f"{folder.name}  completed, here"
    assert ran.stderr == "next: smdp-launch launch\n"
    for name in ("model.tar.gz", "output.tar.gz"):
        stored = object_path(ran_here / STATE_FOLDER / "local", "bucket", f"output/{folder.name}/output/{name}")
        assert stored is not None
        assert (folder / name).read_bytes() == stored.read_bytes()
    assert (folder / "model" / "model.txt").read_text() == "trained"
    assert (folder / "output" / "loss.txt").read_text() == "0.5"
    assert {one.name for one in folder.iterdir()} == {"model", "model.tar.gz", "output", "output.tar.gz"}


@pytest.fixture
def local_cloud_stays(ran_here: Path) -> Iterator[None]:
    """Or each command would start one."""
    with private(ran_here / STATE_FOLDER / "local"):
        yield


@pytest.mark.usefixtures("local_cloud_stays")
def test_what_is_there_is_replaced_only_by_force(ran_here: Path, smdp_launch: Command) -> None:
    assert smdp_launch("download").returncode == ExitCode.OK
    model = job_of(ran_here) / "model.tar.gz"
    fetched = model.read_bytes()
    model.write_text("mine")
    ran = smdp_launch("download")
    assert ran.returncode == ExitCode.REFUSED
    assert "model.tar.gz is there already: --force" in ran.stderr
    assert model.read_text() == "mine"
    assert smdp_launch("download", "--force", "--extract").returncode == ExitCode.OK
    assert model.read_bytes() == fetched
    (model.parent / "model" / "more.txt").write_text("")
    assert smdp_launch("download", "--force", "--extract").returncode == ExitCode.OK
    assert [one.name for one in (model.parent / "model").iterdir()] == ["model.txt"]


def test_the_document_is_as_its_schema_says(ran_here: Path, smdp_launch: Command) -> None:
    document = the_document(smdp_launch("download", "--json"), "download")
    name = job_of(ran_here).name
    assert (document["job"], document["where"], document["status"]) == (name, "local", "Completed")
    paths = [f"{RESULTS_FOLDER}/{name}/model.tar.gz", f"{RESULTS_FOLDER}/{name}/output.tar.gz"]
    assert [one["path"] for one in document["files"]] == paths
    assert [one["bytes"] for one in document["files"]] == [(ran_here / one).stat().st_size for one in paths]


@pytest.mark.runs
def test_what_was_fetched_is_no_part_of_the_next_jobs_source(ran_here: Path, smdp_launch: Command) -> None:
    before = scan_source(ran_here).sha256
    assert smdp_launch("download").returncode == ExitCode.OK
    assert scan_source(ran_here).sha256 == before


@pytest.mark.runs
def test_placeholders_are_to_be_filled_in_next(ran_here: Path, smdp_launch: Command) -> None:
    (ran_here / "job.yaml").write_text(JOB.replace("123456789012", "0" * 12))
    wanted = "next: fill in image, role in job.yaml, then: smdp-launch launch\n"
    assert smdp_launch("download").stderr == wanted


@pytest.mark.runs
def test_a_python_job_is_found_by_its_name_and_fetched(ran_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ran_here)
    seen: list[tuple[str, int]] = []
    fetched = attach().download("out", extract=True, progress=lambda one, done: seen.append((str(one.name), done)))
    assert [one.path.name for one in fetched.files] == ["model.tar.gz", "output.tar.gz"]
    assert fetched.files[0].unpacked == Path("out", fetched.job, "model")
    assert seen[-1] == ("output.tar.gz", fetched.files[1].size)
    assert attach(fetched.job).status() == "Completed"


def test_the_jobs_of_the_folder_are_offered_the_last_first(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    for job, where in (("one-1", "local"), ("two-2", "us-east-1")):
        remember(job, where, "job.yaml", "0" * 64, datetime.now(timezone.utc))
    with (job_folder / STATE_FOLDER / "history.jsonl").open("a") as history:
        history.write('{"job": "cut')
    assert completed(job_folder, "download", "") == {"two-2": "us-east-1", "one-1": "local"}
    assert attach().name == "two-2"
    assert attach("one-1").where == "local"


def test_without_a_launch_a_name_is_needed(smdp_launch: Command, job_folder: Path) -> None:
    ran = smdp_launch("download", "--json")
    assert ran.returncode == ExitCode.REFUSED
    assert the_document(ran, "error")["message"] == "no job was launched from this folder: give the name of one"
    assert not (job_folder / STATE_FOLDER).exists()


def test_without_credentials_a_job_of_the_service_is_not_looked_for(smdp_launch: Command, job_folder: Path) -> None:
    environment = clean_environment(HOME=str(job_folder), AWS_EC2_METADATA_DISABLED="true")
    ran = smdp_launch("download", "small-1", "--region", "us-east-1", "--json", env=environment)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "credentials" in the_document(ran, "error")["message"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """What plays the service: reached by the variables that every AWS tool reads."""
    with private(tmp_path_factory.mktemp("service") / "state") as endpoint:
        cloud = Cloud(endpoint)
        cloud.s3.create_bucket(Bucket=BUCKET)
        yield cloud


@pytest.fixture
def on_aws(service: Cloud, tmp_path: Path) -> dict[str, str]:
    return as_the_service(service.endpoint, tmp_path)


def test_a_launched_job_of_the_service_is_fetched_by_the_same_command(
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
    ("name", "script", "code", "told"),
    [
        ("failed", FAILS, ExitCode.JOB_FAILED, "failed and left nothing to fetch: AlgorithmError: ValueError: no such"),
        pytest.param(
            "empty",
            "pass\n",
            ExitCode.REFUSED,
            "completed and left nothing: its script wrote nothing to SM_MODEL_DIR",
            marks=pytest.mark.runs,
        ),
    ],
)
def test_a_job_that_left_nothing_says_why(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, name: str, script: str, code: ExitCode, told: str
) -> None:
    service.run(name, script)
    ran = smdp_launch("download", name, "--region", "us-east-1", "--json", env=on_aws)
    assert ran.returncode == code
    assert told in the_document(ran, "error")["message"]


@pytest.mark.runs
def test_a_failed_jobs_output_is_fetched_all_the_same(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, job_folder: Path
) -> None:
    service.run("half", f"import os\n{OUTPUT}{FAILS}")
    ran = smdp_launch("download", "half", "--region", "us-east-1", env=on_aws)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.startswith("half  failed, us-east-1\noutput  smdp-results/half/output.tar.gz, ")


def test_a_job_that_goes_on_is_not_fetched(service: Cloud, on_aws: dict[str, str], smdp_launch: Command) -> None:
    service.start("busy", "import time\nprint('at it', flush=True)\ntime.sleep(300)\n")
    service.await_log("busy", "at it")
    ran = smdp_launch("download", "busy", "--region", "us-east-1", "--json", env=on_aws)
    assert ran.returncode == ExitCode.REFUSED
    message = "busy is still at it (Training): its results are there when it has ended"
    assert the_document(ran, "error")["message"] == message
    service.sagemaker.stop_training_job(TrainingJobName="busy")
    service.wait("busy")


def test_a_job_that_nobody_knows_is_the_services_answer(on_aws: dict[str, str], smdp_launch: Command) -> None:
    ran = smdp_launch("download", "nobody", "--region", "us-east-1", "--json", env=on_aws)
    assert ran.returncode == ExitCode.SERVICE
    assert "Requested resource not found" in the_document(ran, "error")["message"]


def test_an_unpacked_model_keeps_its_folders(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, job_folder: Path
) -> None:
    script = "import os\nos.makedirs(os.environ['SM_MODEL_DIR'] + '/a')\n" + MODEL.replace("model.txt", "a/b.txt")
    output = {"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    service.run("loose", script, OutputDataConfig=output)
    ran = smdp_launch("download", "loose", "--region", "us-east-1", env=on_aws)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert (job_folder / RESULTS_FOLDER / "loose" / "model" / "a" / "b.txt").read_text() == "trained"


CONTENT = bytes(range(256)) * 4096


class Moody(BaseHTTPRequestHandler):
    """S3 that ends its first connections early: in the middle of the object, or before another byte of it."""

    asked: list[str]
    cuts: int

    def do_GET(self) -> None:
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        type(self).asked.append(self.headers.get("Range") or "")
        assert self.headers["If-Match"] == '"tag"'
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        if len(type(self).asked) <= type(self).cuts:
            self.wfile.write(b"" if start else body[: len(body) // 2])
            return
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def moody() -> Iterator[tuple[type[Moody], Clients]]:
    handler = type("Mood", (Moody,), {"asked": [], "cuts": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, connect_endpoint(f"http://127.0.0.1:{server.server_port}", "us-east-1", "key", "secret")
    server.shutdown()
    thread.join()
    server.server_close()


RESULT = Result(PurePosixPath("model.tar.gz"), S3Location("bucket", "model.tar.gz"), len(CONTENT), '"tag"')


def fetch_whole(clients: Clients, path: Path, progress: Callable[[int], None] = lambda _: None) -> None:
    publish(fetch(clients, RESULT, path, progress), path)


def test_a_whole_part_is_asked_for_no_more(moody: tuple[type[Moody], Clients], tmp_path: Path) -> None:
    """So a download of several files that was interrupted goes on behind those that were whole."""
    handler, clients = moody
    path = tmp_path / "model.tar.gz"
    fetch(clients, RESULT, path, lambda _: None)
    assert not path.exists()
    fetch_whole(clients, path)
    assert handler.asked == [""]
    assert path.read_bytes() == CONTENT


def test_a_broken_connection_is_taken_up_where_it_broke(moody: tuple[type[Moody], Clients], tmp_path: Path) -> None:
    handler, clients = moody
    handler.cuts = 2
    seen: list[int] = []
    fetch_whole(clients, tmp_path / "model.tar.gz", seen.append)
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT
    assert handler.asked[0] == ""
    assert handler.asked[1] == handler.asked[2] != ""
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)
    assert [one.name for one in tmp_path.iterdir()] == ["model.tar.gz"]


def test_a_connection_that_breaks_for_good_is_told_and_what_came_is_kept(
    moody: tuple[type[Moody], Clients], tmp_path: Path
) -> None:
    handler, clients = moody
    handler.cuts = 1000
    path = tmp_path / "model.tar.gz"
    with pytest.raises(ServiceProblem, match=re.escape("s3://bucket/model.tar.gz cannot be fetched")):
        fetch(clients, RESULT, path, lambda _: None)
    assert not path.exists()
    (part,) = tmp_path.iterdir()
    kept = part.stat().st_size
    assert CONTENT.startswith(part.read_bytes())
    handler.cuts = 0
    fetch_whole(clients, path)
    assert handler.asked[-1] == f"bytes={kept}-"
    assert path.read_bytes() == CONTENT


def test_bytes_of_another_version_are_thrown_away(moody: tuple[type[Moody], Clients], tmp_path: Path) -> None:
    handler, clients = moody
    (tmp_path / ".model.tar.gz.older.part").write_bytes(b"x" * 10)
    (tmp_path / ".model.tar.gz.tag.part").write_bytes(b"x" * (len(CONTENT) + 1))
    fetch_whole(clients, tmp_path / "model.tar.gz")
    assert handler.asked == [""]
    assert [one.name for one in tmp_path.iterdir()] == ["model.tar.gz"]
    assert (tmp_path / "model.tar.gz").read_bytes() == CONTENT


def test_two_downloads_of_one_file_do_not_mix(moody: tuple[type[Moody], Clients], tmp_path: Path) -> None:
    _, clients = moody
    path = tmp_path / "model.tar.gz"

    def second(_: int) -> None:
        with pytest.raises(Refused, match="somebody else is fetching"):
            fetch(clients, RESULT, path, lambda _: None)

    fetch_whole(clients, path, second)
    assert path.read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_told(moody: tuple[type[Moody], Clients], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        fetch(moody[1], RESULT, tmp_path / "file" / "model.tar.gz", lambda _: None)


def test_ctrl_c_leaves_no_half_file_and_the_same_command_goes_on(
    service: Cloud, on_aws: dict[str, str], smdp_launch: Command, job_folder: Path
) -> None:
    service.run("large", f"import os\n{MODEL}")
    key = "out/large/output/model.tar.gz"
    service.s3.put_object(Bucket=BUCKET, Key=key, Body=os.urandom(256 << 20))
    running = subprocess.Popen(
        [LAUNCHER, "download", "large", "--region", "us-east-1", "--json"],
        cwd=job_folder,
        env=on_aws,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while (
        not (parts := list(job_folder.glob(f"{RESULTS_FOLDER}/large/.model.tar.gz.*.part")))
        or parts[0].stat().st_size == 0
    ):
        assert running.poll() is None, running.communicate()
        time.sleep(0.001)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == ExitCode.INTERRUPTED
    assert json.loads(out)["exit_code"] == ExitCode.INTERRUPTED
    assert err.split("\n") == ["the same command goes on from here", "", "interrupted", ""]
    assert not (job_folder / RESULTS_FOLDER / "large" / "model.tar.gz").exists()
    assert parts[0].stat().st_size < 256 << 20
    assert smdp_launch("download", "large", "--region", "us-east-1", env=on_aws).returncode == ExitCode.OK
    fetched = (job_folder / RESULTS_FOLDER / "large" / "model.tar.gz").read_bytes()
    assert fetched == service.object(key)


def member(name: str, **more: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info


def packed(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for one in members:
            content = b"x" * 10 if one.isfile() else None
            one.size = 10 if content else 0
            tar.addfile(one, io.BytesIO(content) if content else None)
    return path


@pytest.mark.parametrize(
    ("evil", "told"),
    [
        (member("../escaped"), "leads out of the folder"),
        (member("/tmp/escaped"), "leads out of the folder"),
        (member("a/../../escaped"), "leads out of the folder"),
        (member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "holds a link"),
        (member("link", type=tarfile.LNKTYPE, linkname="fine"), "holds a link"),
        (member("pipe", type=tarfile.FIFOTYPE), "a device or pipe"),
        (member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "a device or pipe"),
        (member("fine"), "twice"),
    ],
    ids=["up", "absolute", "up-again", "symlink", "hardlink", "pipe", "device", "twice"],
)
def test_an_archive_that_reaches_out_is_not_unpacked(tmp_path: Path, evil: tarfile.TarInfo, told: str) -> None:
    archive = packed(tmp_path / "model.tar.gz", member("fine"), evil)
    with pytest.raises(Refused, match=told):
        unpack(archive, tmp_path / "model")
    assert [one.name for one in tmp_path.iterdir()] == ["model.tar.gz"]
    assert not (tmp_path.parent / "escaped").exists()


def with_a_hole(path: Path, size: int) -> Path:
    """An archive of one file that is nothing but a hole of ``size`` bytes."""
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member("weights", size=512, pax_headers=sparse), io.BytesIO(b"0\n".ljust(512, b"\0")))
    return path


def refuses_to_unpack(archive: Path, error: type[Exception], told: str) -> None:
    """And writes nothing on the way there."""
    with pytest.raises(error, match=told):
        unpack(archive, archive.parent / "model")
    assert [one.name for one in archive.parent.iterdir()] == [archive.name]


def test_an_archive_of_a_few_bytes_that_stands_for_200_gb_is_not_unpacked(tmp_path: Path) -> None:
    archive = with_a_hole(tmp_path / "model.tar.gz", 200 * 10**9)
    assert archive.stat().st_size < 1000
    refuses_to_unpack(archive, Refused, r"model.tar.gz \(\d+ B\) unpacks to 200.0 GB or more, .* --no-limits")


def test_an_archive_that_is_unusually_many_times_larger_unpacked_is_not(tmp_path: Path) -> None:
    archive = with_a_hole(tmp_path / "model.tar.gz", 3 * 10**9)
    refuses_to_unpack(archive, Refused, "unpacks to 3.0 GB or more, and 2.0 GB are allowed")


def test_an_archive_of_too_many_files_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smdp_launch.jobs.transfer.unpack.MOST_MEMBERS", 1000, raising=False)
    archive = packed(tmp_path / "model.tar.gz", *(member(f"{number}") for number in range(1001)))
    refuses_to_unpack(archive, Refused, "holds more than 1000 files and folders")
    unpack(archive, tmp_path / "model", limits=False)
    assert len(list((tmp_path / "model").iterdir())) == 1001


def test_an_archive_whose_headers_would_fill_the_memory_is_not_unpacked(tmp_path: Path) -> None:
    comment = member("weights", pax_headers={"comment": "x" * (2 << 20)})
    refuses_to_unpack(packed(tmp_path / "model.tar.gz", comment), Refused, "announces a header of 2.1 MB")


def test_an_archive_for_which_the_disk_has_no_room_is_not_unpacked(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        archive = with_a_hole(disk.folder / "model.tar.gz", 20 << 20)
        told = f"unpacks to 21.0 MB or more, and 8.4 MB are free in {disk.folder}: free space there, or choose another"
        refuses_to_unpack(archive, EnvironmentProblem, told)
        with pytest.raises(EnvironmentProblem, match="are free in"):
            unpack(archive, disk.folder / "model", limits=False)


def test_limits_are_lifted_by_an_option(ran_here: Path, smdp_launch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ran_here)
    launched = find_launch()
    assert launched is not None
    stored = object_path(ran_here / STATE_FOLDER / "local", "bucket", f"output/{launched.job}/output/model.tar.gz")
    assert stored is not None
    with_a_hole(stored, 3 * 10**9)
    ran = smdp_launch("download", "--extract")
    assert ran.returncode == ExitCode.REFUSED
    assert "--no-limits --force" in ran.stderr
    # The limit of the system for a file of this process: the unpacking gets as far as that.
    ran = smdp_launch("download", "--extract", "--no-limits", "--force", limits={resource.RLIMIT_FSIZE: 1 << 20})
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "File too large" in ran.stderr
    ran = smdp_launch("download", "--no-limits")
    assert ran.returncode == ExitCode.USAGE


def test_a_cut_archive_leaves_what_was_there(tmp_path: Path) -> None:
    archive = packed(tmp_path / "model.tar.gz", *(member(f"{number}") for number in range(1000)))
    archive.write_bytes(archive.read_bytes()[:2000])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "before").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be unpacked"):
        unpack(archive, tmp_path / "model")
    assert [one.name for one in (tmp_path / "model").iterdir()] == ["before"]
    assert {one.name for one in tmp_path.iterdir()} == {"model", "model.tar.gz"}


def test_modes_that_matter_stay(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", member("d/run", mode=0o4755), member("d/data", mode=0o666))
    unpack(archive, tmp_path / "a")
    assert (tmp_path / "a" / "d" / "run").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "a" / "d" / "data").stat().st_mode & 0o7777 == 0o644


def test_keys_that_lead_out_are_refused(service: Cloud, on_aws: dict[str, str], smdp_launch: Command) -> None:
    service.run("odd", "pass\n")
    client_of(service.endpoint, "s3").put_object(Bucket=BUCKET, Key="out/odd/output/a/../../../b", Body=b"")
    ran = smdp_launch("download", "odd", "--region", "us-east-1", env=on_aws)
    assert ran.returncode == ExitCode.REFUSED
    assert "would be written outside the folder" in ran.stderr
