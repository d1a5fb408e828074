"""A local run uploads the data of its channels, and deletes what an earlier run uploaded there."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch.jobs.service.clients import local_cloud
from smdp_launch.jobs.submit import seed
from smdp_launch.planning.plan import LocalRun
from tests.conftest import JOB, write_job
from tests.support.jobs.plans import plan_of

CHECKPOINT = 'checkpoint: {s3: "s3://bucket/saved"}\n'
#: Results, checkpoints, and the data of another channel.
KEPT = {"output/small-1/output/model.tar.gz", "saved/small-1/step-1", "train/test/part-9"}


@pytest.mark.parametrize(
    ("channel", "prefix"),
    [("s3://bucket", ""), ("s3://bucket/", ""), ("s3://bucket/train", "train/"), ("s3://bucket/train/", "train/")],
)
def test_second_run_has_its_own_files_only(tmp_path: Path, channel: str, prefix: str) -> None:
    channels = f'channels:\n  test: {{s3: "s3://bucket/train/test"}}\n  train: {{s3: "{channel}"}}\n'
    text = JOB.replace('channels:\n  train: {s3: "s3://bucket/train"}\n', channels) + CHECKPOINT
    path = write_job(tmp_path, text)
    plan = plan_of(path, LocalRun(1, 1, {"train": tmp_path / "data"}))
    with local_cloud(tmp_path / "state")() as clients:

        def keys() -> set[str]:
            return {one["Key"] for one in clients.s3.list_objects_v2(Bucket="bucket").get("Contents", [])}

        (tmp_path / "data" / "old").mkdir()
        (tmp_path / "data" / "old" / "part-1").write_text("of the first run")
        seed(clients, plan)
        assert keys() == {f"{prefix}part-0", f"{prefix}old/part-1"}
        for key in KEPT:
            clients.s3.put_object(Bucket="bucket", Key=key, Body=b"x")
        (tmp_path / "data" / "old" / "part-1").unlink()
        (tmp_path / "data" / "part-2").write_text("of the second run")
        seed(clients, plan)
        assert keys() == {f"{prefix}part-0", f"{prefix}part-2"} | KEPT


def test_results_at_the_channel_itself_stay(tmp_path: Path) -> None:
    text = JOB.replace("s3://bucket/train", "s3://bucket").replace("s3://bucket/output", "s3://bucket")
    plan = plan_of(write_job(tmp_path, text), LocalRun(1, 1, {"train": tmp_path / "data"}))
    with local_cloud(tmp_path / "state")() as clients:
        seed(clients, plan)
        clients.s3.put_object(Bucket="bucket", Key="small-1/output/model.tar.gz", Body=b"x")
        seed(clients, plan)
        found = clients.s3.list_objects_v2(Bucket="bucket")["Contents"]
    assert [one["Key"] for one in found] == ["part-0", "small-1/output/model.tar.gz"]


def test_data_in_a_whole_bucket_leaves_the_results_of_other_jobs(tmp_path: Path) -> None:
    text = JOB.replace("s3://bucket/train", "s3://bucket").replace("s3://bucket/output", "s3://bucket/new")
    plan = plan_of(write_job(tmp_path, text), LocalRun(1, 1, {"train": tmp_path / "data"}))
    others = ["job-b/output/model.tar.gz", "saved/job-b/checkpoint-5.pt"]
    with local_cloud(tmp_path / "state")() as clients:
        seed(clients, plan)
        for key in others:
            clients.s3.put_object(Bucket="bucket", Key=key, Body=b"x")
        (tmp_path / "data" / "part-0").rename(tmp_path / "data" / "part-1")
        seed(clients, plan)
        found = clients.s3.list_objects_v2(Bucket="bucket")["Contents"]
    assert [one["Key"] for one in found] == sorted([*others, "part-1"])


def test_old_data_is_deleted_where_the_output_is_at_the_channel(tmp_path: Path) -> None:
    text = JOB.replace("s3://bucket/output", "s3://bucket/train")
    plan = plan_of(write_job(tmp_path, text), LocalRun(1, 1, {"train": tmp_path / "data"}))
    with local_cloud(tmp_path / "state")() as clients:
        seed(clients, plan)
        clients.s3.put_object(Bucket="bucket", Key="train/small-1/output/model.tar.gz", Body=b"x")
        (tmp_path / "data" / "part-0").rename(tmp_path / "data" / "part-1")
        seed(clients, plan)
        found = clients.s3.list_objects_v2(Bucket="bucket")["Contents"]
    assert [one["Key"] for one in found] == ["train/part-1", "train/small-1/output/model.tar.gz"]
