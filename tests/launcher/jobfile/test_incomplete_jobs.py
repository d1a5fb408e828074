"""No rule fails because of an invalid or missing field: it reports a diagnostic or nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import has_errors
from tests.conftest import write_job

WHOLE: dict[str, Any] = {
    "schema": 1,
    "name": "whole",
    "engine": "smdistributed",
    "policy": "extended",
    "framework": {"name": "pytorch", "version": "2.0.0", "python": "3.10", "transformers": "4.28.1"},
    "script": {
        "entry": "train.py",
        "source": "src",
        "source_limit_mb": 10,
        "hyperparameters": {"lr": 0.4, "model": {"depth": 50}},
    },
    "compute": {
        "instance_type": "ml.p3.16xlarge",
        "instance_count": 2,
        "volume_gb": 100,
        "max_run": 3600,
        "max_pending": 1800,
        "retries": 2,
    },
    "spot": {"max_wait": 7200},
    "channels": {
        "train": {"s3": "s3://bucket/train", "mode": "FastFile", "content_type": "image/jpeg"},
        "images": {"fsx": "fs-0123456789abcdef0", "path": "/abcdefgh/images", "access": "ro"},
        "more": {"efs": "fs-0123456789abcdef0", "path": "/more"},
        "labels": {"s3": "s3://bucket/labels", "mode": "Pipe", "shuffle": 7, "data_type": "AugmentedManifestFile",
                   "attributes": ["source-ref"]},
    },
    "output": {"s3": "s3://bucket/output", "compression": "none"},
    "checkpoint": {"s3": "s3://bucket/checkpoints", "path": "/opt/ml/checkpoints"},
    "network": {
        "subnets": ["subnet-0123456789abcdef0"],
        "security_groups": ["sg-0123456789abcdef0"],
        "isolated": False,
        "encrypt_traffic": True,
    },
    "encryption": {"volume_key": "alias/volumes", "output_key": "alias/output"},
    "environment": {"NCCL_DEBUG": "INFO"},
    "tags": {"team": "vision"},
    "metrics": {"loss": "loss=([0-9.]+)"},
    "batch": {
        "per_gpu": 64,
        "hyperparameter": "batch-size",
        "reference_size": 256,
        "reference_learning_rate": 0.1,
        "learning_rate": "lr",
        "scaling": "linear",
        "warmup_steps": 100,
    },
    "amp": "fp16",
    "engine_options": {"custom_mpi_options": "-x NCCL_DEBUG=VERSION"},
    "overlay": {"SessionChainingConfig": {"EnableSessionTagChaining": True}},
    "silence": ["SMDP418"],
    "role": "arn:aws:iam::123456789012:role/training",
    "region": "us-west-2",
    "local": {"channels": {"train": "data"}},
}  # fmt: skip

WRONG = [None, 3, "x y", [None], {"a": None}]


def places(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, one in value.items() if isinstance(value, dict) else ():
        yield (*at, key)
        yield from places(one, (*at, key))


def changed(at: tuple[str, ...], value: Any = ..., key: str = "") -> dict[str, Any]:
    """The whole job with another value at ``at``, or without it, or with it under another ``key``."""
    job = copy.deepcopy(WHOLE)
    parent = job
    for part in at[:-1]:
        parent = parent[part]
    was = parent.pop(at[-1])
    if value is not ...:
        parent[at[-1]] = value
    if key:
        parent[key] = was
    return job


def test_the_whole_job_is_sound(tmp_path: Path) -> None:
    assert check_job(write_job(tmp_path, json.dumps(WHOLE)), environ={}).diagnostics == ()


@pytest.mark.parametrize("at", list(places(WHOLE)), ids=".".join)
def test_no_rule_raises_for_an_incomplete_job(at: tuple[str, ...], tmp_path: Path) -> None:
    jobs = [changed(at), changed(at, key=f"{at[-1]}x"), *(changed(at, value) for value in WRONG)]
    path = write_job(tmp_path)
    for job in jobs:
        path.write_text(json.dumps(job))
        check_job(path, LocalRequest(), environ={})


@pytest.mark.parametrize(
    "at", [one for one in places(WHOLE) if len(one) == 1 or one[0] in ("compute", "spot")], ids=".".join
)
def test_misspelt_key_gives_one_error(at: tuple[str, ...], tmp_path: Path) -> None:
    path = write_job(tmp_path, json.dumps(changed(at, key=f"{at[-1]}z")))
    found = [one for one in check_job(path, environ={}).diagnostics if has_errors([one])]
    assert [one.code for one in found] == ["SMDP201"], found
