"""The whole notebook runs, the cells of the installed SageMaker SDK included, with a local cloud in place of AWS."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from smdp_launch.localcloud.client.connect import private
from smdp_launch.templates import template
from tests.conftest import JOB, write_job
from tests.support.notebooks import SCRIPT, executed
from tests.support.services.cloud import client_of

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]


#: The tags of the cells of each version, and the cells that create the trainer, submit the job and find it again.
VERSIONS = {"2": ("sdk", "estimator", "fit", "attach"), "3": ("sdk3", "trainer", "train", "attach3")}


def test_every_notebook_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in os.environ if one.startswith(("AWS_", "SAGEMAKER_"))]:
        monkeypatch.delenv(name)
    write_job(tmp_path, JOB.replace("instance_count: 2", "instance_count: 1"), SCRIPT)
    (tmp_path / "job.ipynb").write_text(template("notebooks/train.ipynb").read_text())
    with private(tmp_path / "service") as endpoint:
        s3 = client_of(endpoint, "s3")
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", endpoint.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", endpoint.secret_key)
        _, made, submitted, found = VERSIONS[version("sagemaker").partition(".")[0]]
        others = {tag for tag, *cells in VERSIONS.values() if made not in cells}
        shown = executed(tmp_path / "job.ipynb", *others)
    assert '<div class="smdp-card">' in shown[made][-1]
    assert "INFO:botocore" not in "".join([*shown[submitted], *shown[found]])
    assert shown[found] == ["'completed'"]
