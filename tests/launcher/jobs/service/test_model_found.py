"""Whether a job has written a model and checkpoints, as the objects in S3 show."""

from __future__ import annotations

from typing import Any

import pytest

from smdp_launch.jobs.records.outcome import outcome, with_files_found

FOLDER = "out/j/output/"
DATA = [f"{FOLDER}data/sample-{number:04}.png" for number in range(1500)]


class Bucket:
    """An S3 client of a bucket with these objects, which lists at most 1000 in an answer."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = sorted(keys)
        self.calls = 0

    def list_objects_v2(self, *, Prefix: str, MaxKeys: int = 1000, **_: Any) -> dict[str, Any]:  # noqa: N803
        self.calls += 1
        found = [{"Key": key} for key in self.keys if key.startswith(Prefix)]
        return {"Contents": found[:MaxKeys], "IsTruncated": len(found) > MaxKeys}


@pytest.mark.parametrize("model", ["model/", "model.tar.gz"])
@pytest.mark.parametrize(
    ("others", "has_model", "calls"),
    [([], True, 1), ([], False, 1), (DATA[:3], False, 1), (DATA, True, 2), (DATA, False, 2)],
)
def test_model_is_found_beside_any_number_of_outputs(
    model: str, others: list[str], has_model: bool, calls: int
) -> None:
    keys = [*others, *([FOLDER + model + ("weights" if model.endswith("/") else "")] if has_model else [])]
    bucket, address = Bucket(keys), f"s3://bucket/{FOLDER}{model}"
    described = {
        "TrainingJobName": "j",
        "TrainingJobStatus": "Completed",
        "ModelArtifacts": {"S3ModelArtifacts": address},
    }
    found = outcome(with_files_found(lambda _: bucket, described))
    assert (found.model, found.wrote_nothing) == (address if has_model else None, not keys)
    assert bucket.calls == calls


@pytest.mark.parametrize(
    ("location", "keys", "can_resume"),
    [
        ("s3://bucket/ck/j", [], False),
        ("s3://bucket/ck/j", ["ck/j2/step-1"], False),
        ("s3://bucket/ck/j/", ["ck/j/"], False),
        ("s3://bucket/ck/j", ["ck/j/", "ck/j/step-1"], True),
        ("s3://bucket/ck/j", ["ck/j/a/", "ck/j/b/", "ck/j/c"], True),
        ("s3://bucket", ["step-1"], True),
    ],
)
def test_job_without_files_at_its_checkpoint_location_cannot_be_resumed(
    location: str, keys: list[str], can_resume: bool
) -> None:
    described = {
        "TrainingJobName": "j",
        "TrainingJobStatus": "Stopped",
        "ModelArtifacts": {},
        "CheckpointConfig": {"S3Uri": location},
    }
    found = outcome(with_files_found(lambda _: Bucket(keys), described))
    assert (found.can_resume, found.checkpoints) == (can_resume, location)
