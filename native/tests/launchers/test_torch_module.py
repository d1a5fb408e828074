"""smdp_engine.torch and smdp_engine.launchers as modules."""

import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

import smdp_engine

PACKAGE = Path(smdp_engine.__file__).parent


def _python(code: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=False)


def test_without_torch_the_module_names_the_command_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "smdp_engine").symlink_to(PACKAGE)
    alone = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import smdp_engine.torch"
    ran = _python(alone, "-E", "-S")  # without site-packages
    assert ran.returncode == 1
    last = "ImportError: smdp_engine.torch needs PyTorch, which is not installed here: pip install torch"
    assert ran.stderr.splitlines()[-1] == last
    assert "During handling" not in ran.stderr


def test_launchers_are_detected_without_torch() -> None:
    ran = _python("import sys, smdp_engine.launchers; print([one for one in ('torch', 'numpy') if one in sys.modules])")
    assert ran.stdout == "[]\n", ran.stderr


@pytest.mark.runs
@pytest.mark.torch
@pytest.mark.parametrize(
    ("variables", "named"),
    [("", 1), ("RANK=0", 1), ("RANK=1", 0), ("SLURM_PROCID=2", 0), ("OMPI_COMM_WORLD_RANK=1 SLURM_PROCID=0", 0)],
)
def test_only_rank_0_of_a_group_names_the_engine(variables: str, named: int) -> None:
    unset = [f"-u{name}" for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")]
    imports = "import smdp_engine.torch, torch.distributed as dist\n"
    group = "dist.init_process_group('{}', store=dist.HashStore(), rank=0, world_size=1)\ndist.destroy_process_group()"
    for backend, lines in (("smddp", named), ("gloo", 0)):
        script = imports + group.format(backend)
        command: List[str] = ["env", *unset, *variables.split(), sys.executable, "-c", script]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.count("smdp: backend smddp is smdp-engine") == lines, (backend, ran.stderr)


@pytest.mark.runs
@pytest.mark.torch
def test_what_init_finds_itself_cannot_be_passed() -> None:
    ran = _python("import smdp_engine.torch\nsmdp_engine.torch.init(store=None, rank=0)")
    assert ran.returncode == 1
    message = "TypeError: init() finds rank, store itself: leave it out, or call init_process_group('smddp', ...)"
    assert ran.stderr.splitlines()[-1] == message
