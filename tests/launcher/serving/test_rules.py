"""Cases of the rules about serving that have no job file of their own in golden/wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic
from tests.support.serving.served import SERVE, SERVES, served_job


def found(folder: Path, serve: str, serves: str = SERVES) -> list[Diagnostic]:
    return list(check_job(served_job(folder, serves, serve), environ={}).diagnostics)


def messages(folder: Path, serve: str, serves: str = SERVES) -> list[str]:
    return [f"{one.code} {one.message}" for one in found(folder, serve, serves)]


def test_sound_section_gives_no_diagnostics(tmp_path: Path) -> None:
    assert found(tmp_path, SERVE) == []


@pytest.mark.parametrize(("hosts", "fits"), [("ml.g5.xlarge", False), ("ml.g5.48xlarge", True), ("ml.m5.large", True)])
def test_weights_larger_than_the_memory_of_the_gpus_are_reported(tmp_path: Path, hosts: str, *, fits: bool) -> None:
    model = "model: {parameters: 30000000000, dtype: bfloat16}\nsilence: [SMDP332, SMDP516]\n"
    said = [one for one in messages(tmp_path, SERVE.replace("ml.m5.large", hosts) + model) if "SMDP343" in one]
    wanted = f"SMDP343 the parameters have 60 GB, and the GPUs of {hosts} have 24 GB together"
    assert said == ([] if fits else [wanted])


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ("{kind: batch, instance_type: ml.p5.48xlarge, input: 's3://bucket/new'}", "SMDP340 SageMaker has no instance"),
        ("{instance_type: ml.inf2.xlarge, lifetime: 60}", "SMDP342 ml.inf2.xlarge needs an image for its accelerators"),
        (
            "{instance_type: ml.m5.large, expiry_role: 'arn:aws:iam::123456789012:role/x'}",
            "SMDP341 `expiry_role` deletes",
        ),
        ("{kind: serverless, image: 'mine:2.0-gpu-py310'}", "SMDP344 a serverless endpoint has no GPUs"),
        ("{instance_type: ml.m5.large, lifetime: 60, image: 'mine:2.0-gpu-py310'}", "SMDP343 the image is for GPUs"),
    ],
)
def test_section_that_cannot_work_is_reported(tmp_path: Path, serve: str, message: str) -> None:
    said = messages(tmp_path, f"serve: {serve.replace('{', '{entry: inference.py, ', 1)}\n")
    assert any(one.startswith(message) for one in said), said


@pytest.mark.parametrize(
    "serves",
    [
        "from model import model_fn\n",
        "import torch\n\nif torch.__version__:\n    def model_fn(model_dir): ...\nelse:\n    model_fn = None\n",
        "try:\n    from fast import model_fn\nexcept ImportError:\n    def model_fn(model_dir): ...\n",
        "from handlers import *\n",
        "def load(model_dir): ...\n\n\nmodel_fn = load\n",
    ],
)
def test_every_form_of_definition_counts(tmp_path: Path, serves: str) -> None:
    assert [one for one in messages(tmp_path, SERVE, serves) if "SMDP461" in one] == []


def test_device_that_depends_on_the_host_is_no_problem(tmp_path: Path) -> None:
    serves = (
        "import torch\n\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\n\n\n"
        "def model_fn(model_dir):\n    return torch.load(model_dir).to(DEVICE)\n"
    )
    assert found(tmp_path, SERVE, serves) == []


def test_comment_about_cuda_is_no_use_of_it(tmp_path: Path) -> None:
    assert found(tmp_path, SERVE, SERVES + "# model.cuda() needs a GPU\n") == []


def test_package_of_a_local_module_and_of_the_requirements_is_installed(tmp_path: Path) -> None:
    served_job(tmp_path)
    (tmp_path / "src" / "net.py").write_text("import numpy\nimport einops\n")
    (tmp_path / "src" / "requirements.txt").write_text("einops==0.8\nopencv-python-headless\n")
    serves = "import json\nimport cv2\nimport net\nimport torch\n\n\ndef model_fn(model_dir): ...\n"
    assert found(tmp_path, SERVE, serves) == []
    missing = messages(tmp_path, SERVE, "import net\nimport timm\n\n\ndef model_fn(model_dir): ...\n")
    assert missing == ["SMDP462 the serving script imports timm, which AWS's inference image does not have"]


def test_import_inside_a_function_is_not_checked(tmp_path: Path) -> None:
    serves = "def model_fn(model_dir):\n    import timm\n    return timm\n"
    assert found(tmp_path, SERVE, serves) == []


@pytest.mark.parametrize(
    ("kind", "hosts", "refused"),
    [
        ("batch", "ml.g4dn.xlarge", True),
        ("batch", "ml.m5.large", False),
        ("realtime", "ml.g4dn.xlarge", False),  # the service accepts the key
    ],
)
def test_volume_key_is_refused_for_a_transform_on_local_disks(
    tmp_path: Path, kind: str, hosts: str, *, refused: bool
) -> None:
    reads = "input: 's3://bucket/new'" if kind == "batch" else "lifetime: 7200"
    key = "encryption: {volume_key: alias/volumes}\n"
    on_ebs = key + f"serve: {{kind: {kind}, entry: inference.py, instance_type: {hosts}, {reads}}}\n"
    path = served_job(tmp_path, serve=on_ebs)
    path.write_text(path.read_text().replace("ml.p4d.24xlarge", "ml.p3.16xlarge"))
    said = [one for one in check_job(path, environ={}).diagnostics if one.code == "SMDP322"]
    assert [one.message for one in said] == (
        [f"{hosts} has local NVMe disks, and SageMaker refuses a key for their volumes"] if refused else []
    )
    assert all("choose another `serve.instance_type`" in one.help for one in said)
