"""`launch --local --cuda-on-cpu`: CUDA emulation gives the results of the same script edited for CPUs."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from smdp_launch.cli.main import smdp_launch as command_line
from smdp_launch.errors import ExitCode
from tests.conftest import ROOT
from tests.endtoend.conftest import Job
from tests.support.jobs.local import launch

pytestmark = pytest.mark.torch
SCRIPT = ROOT / "tests" / "endtoend" / "scripts" / "requires_cuda.py"

#: The edits for a machine without a GPU.
EDITS = (
    ('if not torch.cuda.is_available():\n    raise RuntimeError("this script needs a GPU")\n', ""),
    ("torch.cuda.set_device(local_rank)\n", ""),
    ('torch.device("cuda", local_rank)', 'torch.device("cpu")'),
    (", pin_memory=True", ""),
    ("nn.Linear(800, 10)).cuda()", "nn.Linear(800, 10))"),
    ("DDP(model, device_ids=[local_rank], output_device=local_rank)", "DDP(model)"),
    ('GradScaler("cuda"', 'GradScaler("cpu"'),
    ('autocast("cuda"', 'autocast("cpu"'),
    ("start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)\nstart.record()\n", ""),
    ("inputs.cuda(non_blocking=True).sub_(0.1).div_(1.1)", "(inputs - 0.1) / 1.1"),
    ("end.record()\ntorch.cuda.synchronize()\n", ""),
    ('print("took", start.elapsed_time(end) > 0, "peak", torch.cuda.max_memory_allocated(device))\n', ""),
)


def edited_for_cpu() -> str:
    text = SCRIPT.read_text()
    for before, after in EDITS:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


def run(job: Job, script: str, settings: str, *flags: str) -> str:
    job.write(script, ("{epochs: 2}", settings))
    ran = launch(job, *flags)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    return ran.stdout


def losses(output: str, precision: str) -> list[float]:
    """The losses of rank 0; the other ranks print the same."""
    losses = re.findall(rf"^algo-\d:\d \| {precision} (.*)$", output, re.MULTILINE)
    assert len(losses) == 4
    assert len(set(losses)) == 1
    return [float(one) for one in losses[0].split()]


@pytest.mark.runs
@pytest.mark.parametrize("first_generation", ["no", pytest.param("yes", marks=pytest.mark.soak)])
def test_cuda_script_reaches_loss_of_cpu_script(job: Job, first_generation: str) -> None:
    settings = f"{{first-generation: '{first_generation}'}}"
    output = run(job, SCRIPT.read_text(), settings, "--cuda-on-cpu")
    edited = run(job, edited_for_cpu(), settings)
    for precision in ("float32", "float16", "bfloat16"):
        found, expected = losses(output, precision), losses(edited, precision)
        assert len(found) == 16
        assert min(expected) < expected[0]
        worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
        print(f"{precision}: largest difference of a loss over 16 steps: {worst:.1e}")
        assert worst <= 1e-5
    assert losses(output, "float32") != losses(output, "float16")
    assert output.count("smdp: CUDA is emulated on the CPU") == 1
    assert output.count("took True peak 0") == 4


@pytest.mark.runs
def test_without_flag_cuda_script_does_not_start(job: Job) -> None:
    job.write(SCRIPT.read_text(), ("{epochs: 2}", "{first-generation: 'no'}"))
    ran = launch(job, hosts=1, workers=1)
    assert ran.returncode == ExitCode.JOB_FAILED
    assert "RuntimeError: this script needs a GPU" in ran.stdout


def test_missing_gpu_is_an_error_as_on_sagemaker(job: Job) -> None:
    job.write("import os, torch\ntorch.cuda.set_device(int(os.environ['RANK']))\n")
    ran = launch(job, "--cuda-on-cpu", workers=1)
    assert ran.returncode == ExitCode.JOB_FAILED
    assert "invalid device ordinal: there is no cuda:1, this host emulates 1 GPUs" in ran.stdout


def test_script_without_torch_does_not_import_torch(job: Job) -> None:
    job.write("import sys\nprint('loaded', 'torch' in sys.modules)\n")
    ran = launch(job, "--cuda-on-cpu", hosts=1, workers=1)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "algo-1:0 | loaded False" in ran.stdout


def test_flag_without_local_is_refused(job: Job) -> None:
    path = job.write("print('trained')\n")
    ran = CliRunner().invoke(command_line, ["launch", str(path), "--cuda-on-cpu"])
    assert (ran.exit_code, "--cuda-on-cpu requires --local" in ran.stderr) == (ExitCode.USAGE, True)


def test_flag_is_in_local_plan_and_not_in_aws_request(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.folder)
    job.write("print('trained')\n")
    dry = ["launch", "--dry-run", "--json"]
    local = CliRunner().invoke(command_line, [*dry, "--local", "--cuda-on-cpu"]).stdout
    assert json.loads(local)["request"]["Environment"]["SMDP_LOCAL_CUDA_ON_CPU"] == "1"
    assert "CUDA" not in CliRunner().invoke(command_line, dry).stdout
    shown = CliRunner().invoke(command_line, ["launch", "--dry-run", "--local", "--cuda-on-cpu"]).stdout
    assert re.search(r"^CUDA +emulated on the CPU", shown, re.MULTILINE)
