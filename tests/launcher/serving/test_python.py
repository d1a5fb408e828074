"""A model deployed from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import smdp_launch
from smdp_launch import EndpointFailed, Refused
from smdp_launch.jobs.records.endpoints import served
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.serving.served import BREAKS, served_job


@pytest.mark.runs
def test_model_is_deployed_asked_and_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = served_job(tmp_path)
    job = smdp_launch.launch(smdp_launch.plan(path, local=True, hosts=1, workers_per_host=1))
    with pytest.raises(Refused, match="still runs"):
        smdp_launch.deploy(job)
    assert job.wait(120).summary == "completed"

    endpoint = smdp_launch.deploy(job)
    assert (endpoint.name, endpoint.where, endpoint.kind, endpoint.status()) == (
        job.name,
        "local",
        "realtime",
        "InService",
    )
    assert json.loads(endpoint.invoke(b"[1, 2]", "application/json")) == ["trained", 2]
    assert smdp_launch.deploy() == endpoint
    deleted = endpoint.undeploy()
    assert (len(deleted.deleted), deleted.missing, deleted.left, endpoint.status()) == (4, [], {}, None)

    (tmp_path / "src" / "inference.py").write_text(BREAKS)
    with pytest.raises(EndpointFailed, match="nothing of the deployment is left") as failed:
        smdp_launch.deploy(settings=["serve.startup_timeout=60"])
    assert any("no such weights" in line for line in failed.value.log)
    assert served() == []
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))
