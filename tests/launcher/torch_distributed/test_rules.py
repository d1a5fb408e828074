"""The rules about torch.distributed with its own backends (engines nccl and gloo)."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.diagnostics import Severity
from tests.conftest import write_job
from tests.launcher.torch_distributed.jobs import AWS_IMAGE, SCRIPT, codes, found, on

# -- engine, framework and image --------------------------------------------------------------------------------------


def test_replaced_torch_is_that_of_the_image(tmp_path: Path) -> None:
    write_job(tmp_path, AWS_IMAGE, SCRIPT)
    (tmp_path / "src" / "requirements.txt").write_text("torch==1.13.1\n", encoding="utf-8")
    (one,) = found(tmp_path)
    assert (one.code, one.message) == ("SMDP449", "torch==1.13.1: pip replaces PyTorch 2.5.1 of the image")


@pytest.mark.parametrize("type_", ["ml.g5.xlarge", "ml.p3.2xlarge", "ml.g6e.48xlarge", "ml.p5en.48xlarge"])
@pytest.mark.parametrize("policy", ["strict", "extended"])
def test_every_gpu_type_is_allowed_under_every_policy(type_: str, policy: str, tmp_path: Path) -> None:
    more = f"policy: {policy}\nsilence: [SMDP329]\n"
    assert found(tmp_path, on(type_), more=more) == []


@pytest.mark.parametrize(
    ("type_", "words"),
    [("ml.trn1.32xlarge", "Trainium"), ("ml.c5.4xlarge", "no GPUs"), ("ml.p2.xlarge", "no documented facts")],
)
def test_type_without_gpus_is_refused_with_its_reason(type_: str, words: str, tmp_path: Path) -> None:
    (one,) = found(tmp_path, on(type_))
    assert (one.code, one.severity) == ("SMDP301", Severity.ERROR)
    assert words in one.message


def test_gloo_trains_on_cpus_but_not_on_trainium(tmp_path: Path) -> None:
    gloo = ("engine: nccl", "engine: gloo")
    assert found(tmp_path, gloo, on("ml.c5.4xlarge")) == []
    assert codes(found(tmp_path, gloo, on("ml.trn1.2xlarge"))) == ["SMDP301"]
    assert codes(found(tmp_path, gloo, on("ml.g5.xlarge"))) == ["SMDP330"]


def test_cuda_12_image_needs_no_policy(tmp_path: Path) -> None:
    assert found(tmp_path, ('"2.5.1"', '"2.8.0"')) == []


def test_own_image_may_have_a_version_that_aws_has_not(tmp_path: Path) -> None:
    own = ("# image: ", "image: ")
    assert found(tmp_path, own, (":2.0.1-cu118", ":7"), ('"2.5.1"', '"2.99.0"')) == []
    assert codes(found(tmp_path, ('"2.5.1"', '"2.99.0"'))) == ["SMDP302"]
    assert codes(found(tmp_path, ('"2.5.1"', '"1.12.1"'))) == ["SMDP325"]
    assert found(tmp_path, own, (":2.0.1-cu118", ":7"), ('"2.5.1"', '"1.12.1"')) == []


@pytest.mark.parametrize("option", ["streams: 4", "custom_mpi_options: -verbose"])
def test_options_of_other_engines_have_no_effect(option: str, tmp_path: Path) -> None:
    (one,) = found(tmp_path, more=f"engine_options: {{{option}}}\n")
    assert one.code == "SMDP319"
    assert "reads its options from variables" in one.message


def test_one_host_is_no_problem(tmp_path: Path) -> None:
    assert found(tmp_path, ("instance_count: 2", "instance_count: 1")) == []


# -- fabric -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "variable", "code"),
    [
        ("ml.p4d.24xlarge", "NCCL_PROTO: simple", "SMDP327"),
        ("ml.p4d.24xlarge", "NCCL_SOCKET_IFNAME: eth0", "SMDP327"),
        ("ml.p4d.24xlarge", "NCCL_SOCKET_IFNAME: ^docker0", None),
        ("ml.p4d.24xlarge", 'NCCL_P2P_DISABLE: "1"', "SMDP327"),
        ("ml.p4d.24xlarge", 'NCCL_P2P_DISABLE: "0"', None),
        ("ml.g5.48xlarge", 'NCCL_P2P_DISABLE: "1"', None),
        ("ml.p4d.24xlarge", 'RDMAV_FORK_SAFE: "1"', "SMDP327"),
        ("ml.p4d.24xlarge", "FI_PROVIDER: efa", None),
        ("ml.p4d.24xlarge", "FI_PROVIDER: tcp", "SMDP327"),
        ("ml.p3.16xlarge", "FI_PROVIDER: efa", "SMDP327"),
        ("ml.p4d.24xlarge", "NCCL_DEBUG: INFO", None),
        ("ml.p4d.24xlarge", 'FI_EFA_USE_DEVICE_RDMA: "1"', None),
        ("ml.g5.48xlarge", 'FI_EFA_USE_DEVICE_RDMA: "1"', "SMDP328"),
        ("ml.g6e.48xlarge", 'FI_EFA_USE_DEVICE_RDMA: "1"', None),
    ],
)
def test_variable_is_judged_by_the_type(type_: str, variable: str, code: str | None, tmp_path: Path) -> None:
    more = f"environment: {{{variable}}}\nsilence: [SMDP329]\n"
    assert codes(found(tmp_path, on(type_), more=more)) == ([] if code is None else [code])


def test_variables_of_other_engines_are_not_judged(tmp_path: Path) -> None:
    native = (("engine: nccl", "engine: native"), ("# image: ", "image: "), ('"2.5.1"', '"2.0.1"'))
    assert found(tmp_path, *native, more="environment: {NCCL_PROTO: simple}\n") == []


def test_hosts_without_efa_exchange_over_tcp(tmp_path: Path) -> None:
    (one,) = found(tmp_path, on("ml.g5.2xlarge"))
    assert (one.code, one.severity) == ("SMDP329", Severity.WARNING)
    assert "10 Gbit/s" in one.message
    assert found(tmp_path, on("ml.g5.2xlarge"), ("instance_count: 2", "instance_count: 1")) == []


def test_p5_needs_cuda_12_on_several_hosts(tmp_path: Path) -> None:
    old = (on("ml.p5.48xlarge"), ('"2.5.1"', '"2.0.1"'))
    assert codes(found(tmp_path, *old)) == ["SMDP326"]
    assert found(tmp_path, *old, ("instance_count: 2", "instance_count: 1")) == []
    assert found(tmp_path, on("ml.p5.48xlarge")) == []


# -- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "call", "severity"),
    [
        ("ml.p3.16xlarge", 'torch.autocast("cuda", dtype=torch.bfloat16)', Severity.WARNING),
        ("ml.p4d.24xlarge", 'torch.autocast("cuda", dtype=torch.bfloat16)', None),
        ("ml.p4d.24xlarge", 'Accelerator(mixed_precision="fp8")', Severity.ERROR),
        ("ml.p5.48xlarge", 'Accelerator(mixed_precision="fp8")', None),
        ("ml.p3.16xlarge", 'Trainer(precision="bf16-mixed")', Severity.WARNING),
        ("ml.p3.16xlarge", "TrainingArguments(bf16=True)", Severity.WARNING),
        ("ml.p3.16xlarge", "TrainingArguments(bf16=torch.cuda.is_bf16_supported())", None),
        ("ml.p3.16xlarge", 'Trainer(precision="bf16-mixed" if args.new else "16")', None),
    ],
)
def test_precision_of_the_script_needs_its_gpu(
    type_: str, call: str, severity: Severity | None, tmp_path: Path
) -> None:
    script = f"import torch\nfrom somewhere import Accelerator, Trainer, TrainingArguments\n{call}\n"
    reported = found(tmp_path, on(type_), more="silence: [SMDP329]\n", script=script)
    assert [(one.code, one.severity) for one in reported] == ([("SMDP515", severity)] if severity else [])


def test_conditional_precision_is_not_reported(tmp_path: Path) -> None:
    script = "import torch\nif torch.version.cuda:\n    torch.autocast('cuda', dtype=torch.bfloat16)\n"
    assert found(tmp_path, on("ml.g4dn.12xlarge"), script=script) == []


# -- launchers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "mp.spawn(main, nprocs=8)",
        'subprocess.run(["torchrun", "--nproc_per_node=8", "train2.py"])',
        'os.system("accelerate launch train2.py")',
        'subprocess.check_call("python -m torch.distributed.launch train2.py", shell=True)',
    ],
)
def test_script_that_starts_workers_is_reported(call: str, tmp_path: Path) -> None:
    script = f"import os, subprocess\nimport torch.multiprocessing as mp\n\ndef main(rank):\n    pass\n\n{call}\n"
    assert codes(found(tmp_path, script=script)) == ["SMDP452"]
    guarded = script.replace("import os, subprocess", 'import os, subprocess\nrank = os.environ["RANK"]')
    assert found(tmp_path, script=guarded) == []


def test_option_that_the_script_has_is_not_reported(tmp_path: Path) -> None:
    options = ("{epochs: 2}", "{num_nodes: 2}")
    reads = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--num_nodes', type=int)\n"
    assert "SMDP451" in codes(found(tmp_path, options))
    assert found(tmp_path, options, script=f"{reads}parser.parse_args()\n") == []


def deepspeed(folder: Path, text: str, **options: LocalRequest) -> list[str]:
    write_job(folder)
    (folder / "src" / "ds.json").write_text(text)
    return codes(found(folder, ("{epochs: 2}", "{deepspeed: ds.json}"), **options))


def test_deepspeed_batch_is_that_of_the_job(tmp_path: Path) -> None:
    assert deepspeed(tmp_path, '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}') == []
    assert deepspeed(tmp_path, '{"train_batch_size": 65, "train_micro_batch_size_per_gpu": 4}') == ["SMDP453"]
    assert deepspeed(tmp_path, '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4}') == []
    assert deepspeed(tmp_path, "[1]") == ["SMDP453"]
    wrong = '{"train_batch_size": 65, "train_micro_batch_size_per_gpu": 4}'
    assert deepspeed(tmp_path, wrong, local=LocalRequest()) == []  # which has fewer workers


def test_shell_script_runs_only_in_an_own_image(tmp_path: Path) -> None:
    write_job(tmp_path)
    (tmp_path / "src" / "run.sh").write_text("python train.py\n")
    entry = ("entry: train.py", "entry: run.sh")
    assert codes(found(tmp_path, entry)) == ["SMDP454"]
    assert "SMDP454" not in codes(found(tmp_path, entry, ("# image: ", "image: ")))


def test_package_as_source_is_refused_in_an_aws_image(tmp_path: Path) -> None:
    write_job(tmp_path)
    (tmp_path / "src" / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    assert codes(found(tmp_path)) == ["SMDP454"]
    assert "SMDP454" not in codes(found(tmp_path, local=LocalRequest()))  # the project's entrypoint starts packages
    assert "SMDP454" not in codes(found(tmp_path, ("# image: ", "image: ")))
    (tmp_path / "src" / ".smdpignore").write_text("/setup.py\n")
    assert codes(found(tmp_path)) == []


# -- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "severity"),
    [
        ("parameters: 1000000000, optimizer: adamw", None),
        ("parameters: 2200000000, optimizer: adamw", Severity.WARNING),
        ("parameters: 7000000000, optimizer: adamw", Severity.ERROR),
        ("parameters: 7000000000, optimizer: adamw, sharding: parameters", None),
        ("parameters: 7000000000, trainable: 1000000, dtype: bfloat16, optimizer: adamw", None),
    ],
)
def test_model_is_held_against_the_gpu(model: str, severity: Severity | None, tmp_path: Path) -> None:
    reported = found(tmp_path, more=f"model: {{{model}}}\n")
    assert [(one.code, one.severity) for one in reported] == ([("SMDP516", severity)] if severity else [])


def test_stage_of_deepspeed_shards_the_model(tmp_path: Path) -> None:
    write_job(tmp_path)
    (tmp_path / "src" / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    change = ("{epochs: 2}", "{deepspeed: ds.json}")
    assert found(tmp_path, change, more="model: {parameters: 7000000000, optimizer: adamw}\n") == []


# -- backend of the script --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "backend", "codes_"),
    [("nccl", "nccl", []), ("nccl", "gloo", ["SMDP441"]), ("nccl", "smddp", ["SMDP441"]), ("gloo", "gloo", [])],
)
def test_backend_of_the_script_is_the_engine(engine: str, backend: str, codes_: list[str], tmp_path: Path) -> None:
    type_ = on("ml.c5.4xlarge") if engine == "gloo" else on("ml.p4d.24xlarge")
    script = f'import torch.distributed as dist\n\ndist.init_process_group("{backend}")\n'
    assert codes(found(tmp_path, ("engine: nccl", f"engine: {engine}"), type_, script=script)) == codes_


def test_nccl_on_cpus_is_an_error_on_aws_only(tmp_path: Path) -> None:
    script = 'import torch.distributed as dist\n\ndist.init_process_group("nccl")\n'
    changes = (("engine: nccl", "engine: gloo"), on("ml.c5.4xlarge"))
    (one,) = found(tmp_path, *changes, script=script)
    assert (one.code, one.severity) == ("SMDP441", Severity.ERROR)
    here = [one for one in found(tmp_path, *changes, script=script, local=LocalRequest()) if one.code == "SMDP441"]
    assert [one.severity for one in here] == [Severity.WARNING]
