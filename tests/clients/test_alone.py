"""The SageMaker SDK v2 trains with the exports of `local up` alone, and no packet leaves the loopback interface.

`make test-clients` makes the SDK's environment and runs this there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.isolated_shell import run_client
from tests.support.isolation import needs_networks

pytestmark = [pytest.mark.clients, needs_networks, pytest.mark.timeout(600)]

TRAINS = """\
import os
print("trained by", os.environ["RANK"], flush=True)
open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w").write("trained")
"""
#: No role, no bucket, no session.
FIT = """
from sagemaker.pytorch import PyTorch
estimator = PyTorch(
    entry_point="train.py",
    source_dir="src",
    framework_version="2.0.1",
    py_version="py310",
    instance_type="ml.p4d.24xlarge",
    instance_count=1,
    environment={"SMDP_WORKERS_PER_HOST": "1"},
)
estimator.fit(logs="All")
print("model in", estimator.model_data)
"""


def test_estimator_trains_without_role_and_bucket_and_sends_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAINS)
    ran = run_client(Path(sys.executable), FIT, tmp_path)
    assert ran.code == 0, ran.output
    assert "trained by 0" in ran.output
    assert "model in s3://sagemaker-us-east-1-000000000000/pytorch-training-" in ran.output
    assert ran.packets_without_route == 0
