"""Copies of a host's folders: files whose names cannot be keys in S3, and folders that cannot be listed."""

from __future__ import annotations

import resource
from pathlib import Path

from smdp_launch.localcloud.client.bucket import Buckets
from smdp_launch.localcloud.layout import StateFolder
from smdp_launch.localcloud.runtime.checkpoints import FolderSync
from smdp_launch.localcloud.runtime.tree import HostTree
from tests.support.jobs.archives import members
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.waiting import wait_for

# Writes checkpoints of which the second and third cannot be objects, and a fourth once the file `go` exists.
CHECKPOINTS = """
    import os, pathlib, time
    folder = os.environ["SMDP_CHECKPOINT_DIR"]
    model = os.fsencode(os.environ["SM_MODEL_DIR"])
    pathlib.Path(folder, "a-first").write_text("1")
    with open(os.fsencode(folder) + b"/mod\\xe8le", "w") as file:
        file.write("2")
    deep = pathlib.Path(folder, *["d" * 250] * 4, "e" * 100)
    deep.parent.mkdir(parents=True)
    deep.write_text("3")
    with open(model + b"/mod\\xe8le", "w") as file:
        file.write("weights")
    print("waits", flush=True)
    while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
        time.sleep(0.05)
    pathlib.Path(folder, "z-last").write_text("4")
    print("ends", flush=True)
"""

MODEL = """
    import os
    for name in (b"good", b"mod\\xe8le"):
        with open(os.path.join(os.fsencode(os.environ["SM_MODEL_DIR"]), name), "w") as file:
            file.write("weights")
"""


def test_other_checkpoints_are_uploaded_while_the_job_runs(cloud: Cloud) -> None:
    config = {"S3Uri": f"s3://{BUCKET}/names/"}
    cloud.start("names", CHECKPOINTS, CheckpointConfig=config)
    skipped = cloud.await_log("names", "is skipped: it is not UTF-8")
    assert skipped == (
        "[algo-1] Checkpoint upload: b'mod\\xe8le' is skipped: it is not UTF-8, so it cannot be a key in S3"
    )
    cloud.await_log("names", "is skipped: it has more than 1024 bytes")
    wait_for(lambda: "names/a-first" in cloud.keys("names/"), "the first checkpoint")
    (cloud.output("names") / "go").touch()
    job = cloud.wait("names")
    assert job["TrainingJobStatus"] == "Completed"
    assert cloud.keys("names/") == ["names/a-first", "names/z-last"]
    assert members(cloud.object("out/names/output/model.tar.gz")) == ["mod\udce8le"]
    assert sum("is skipped" in line for line in cloud.log("names")) == 2


def test_skipped_files_are_preserved(cloud: Cloud) -> None:
    config = {"S3Uri": f"s3://{BUCKET}/kept/"}
    cloud.start("kept", CHECKPOINTS, CheckpointConfig=config)
    cloud.await_log("kept", "waits")
    (cloud.output("kept") / "go").touch()
    assert cloud.wait("kept")["TrainingJobStatus"] == "Completed"
    results = cloud.state_dir / "jobs/kept/results"
    kept = sorted(path for path in results.rglob("*") if path.is_file())
    assert [path.read_text() for path in kept] == ["3", "2"]
    assert kept[1] == results / "algo-1/ml/checkpoints/mod\udce8le"
    assert cloud.log("kept")[-1] == f"[algo-1] files were not uploaded; the job's results are in {results}"


def test_model_without_archive_is_preserved(cloud: Cloud) -> None:
    output = {"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    job = cloud.run("plain", MODEL, OutputDataConfig=output)
    results = cloud.state_dir / "jobs/plain/results"
    assert job["FailureReason"] == (
        "ClientError: Artifact upload failed:InvalidKey (400): b'model/mod\\xe8le' cannot be a key: it is not UTF-8; "
        f"the job's results are in {results}"
    )
    assert sorted(path.read_text() for path in results.glob("algo-1/ml/model/*")) == ["weights", "weights"]


def test_symbolic_links_are_reported_once(cloud: Cloud, tmp_path: Path) -> None:
    request = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/links/"}}
    folder = tmp_path / "algo-1/ml/checkpoints"
    (folder / "step").mkdir(parents=True)
    (folder / "step/weights").touch()
    (folder / "last.ckpt").symlink_to("step/weights")
    (folder / "last").symlink_to("step")
    buckets, reported = Buckets(StateFolder(cloud.state_dir)), list[str]()
    sync = FolderSync(
        request, [HostTree("algo-1", tmp_path / "algo-1")], buckets, tmp_path / "scratch", reported.append
    )
    try:
        sync.finish()
        sync.finish()
    finally:
        buckets.close()
    assert cloud.keys("links/") == ["links/step/weights"]
    assert reported == ["Checkpoint upload: the local cloud does not upload symbolic links: 'last', 'last.ckpt'"]


def test_checkpoints_of_a_folder_that_cannot_be_listed_stay_in_the_bucket(cloud: Cloud, tmp_path: Path) -> None:
    request = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/listed/"}}
    step = tmp_path / "algo-1/ml/checkpoints/step"
    step.mkdir(parents=True)
    (step / "weights").touch()
    buckets = Buckets(StateFolder(cloud.state_dir))
    sync = FolderSync(request, [HostTree("algo-1", tmp_path / "algo-1")], buckets, tmp_path / "scratch", print)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        sync.finish()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        sync.finish()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert cloud.keys("listed/") == ["listed/step/weights"]
        (step / "weights").unlink()
        sync.finish()
        assert cloud.keys("listed/") == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        buckets.close()
