"""Third-party libraries train on smddp as on Gloo: 2 hosts of 2 ranks, the same script, the same loss."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from .environments import AS_ACCELERATE, AS_THE_TOOLKIT, HERE, PYTHON

IN_PYTORCH = ("fsdp2.py",)  # needs no other package

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


def _environment(rank: int, port: int) -> dict[str, str]:
    host, local_rank = divmod(rank, 2)
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "SMDATAPARALLEL_LOCAL_RANK": str(local_rank),
        "NODE_RANK": str(host),
        "GROUP_RANK": str(host),
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "SMDP_HOST_ID": f"algo-{host + 1}",
        "SMDP_INTERFACE": "127.0.0.1",
        "SMDP_JOB_TOKEN": "0123456789abcdef0123456789abcdef",
        "DS_ACCELERATOR": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _start(said: Path, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with said.open("wb") as output:
        return subprocess.Popen(command, cwd=HERE, env=environment, stdout=output, stderr=output)


def _train(folder: Path, script: str, backend: str, arguments: list[str], extra: dict[str, str]) -> list[float]:
    """Rank 0's losses, after all four ranks exited successfully."""
    python = Path(sys.executable) if script in IN_PYTORCH else PYTHON
    assert python.exists(), "make test-programs makes the environment that these tests run in"
    port = free_port()
    command = [str(python), *script.split(), *arguments]
    said = [folder / f"{backend}-{rank}.txt" for rank in range(4)]
    ranks = [_start(said[rank], command, {**_environment(rank, port), **extra}) for rank in range(4)]
    try:
        codes = [process.wait(timeout=240) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    outputs = [path.read_text() for path in said]
    assert codes == [0, 0, 0, 0], f"{script} on {backend}: {codes}\n" + "\n".join(text[-3000:] for text in outputs)
    assert f"backend {backend}" in outputs[0], outputs[0]
    return [float(value) for value in re.findall(r"^loss ([\d.]+)", outputs[0], re.MULTILINE)]


PROGRAMS = {
    "lightning": ("lightning_ddp.py", ["{backend}"], {}),
    "accelerate": ("accelerate_loop.py", [], AS_ACCELERATE),
    "accelerate-stream": ("accelerate_stream.py", [], AS_ACCELERATE),
    "trainer": ("without_gpu.py trainer_bert.py", ["{folder}"], AS_THE_TOOLKIT),
    "deepspeed-zero-1": ("deepspeed_zero.py", ["{backend}", "1"], {}),
    "deepspeed-zero-2": ("deepspeed_zero.py", ["{backend}", "2"], {}),
    "fsdp2": ("fsdp2.py", ["{backend}", "float32"], {}),
    "fsdp2-bfloat16": ("fsdp2.py", ["{backend}", "bfloat16"], {}),
}


def _marked(program: str) -> Any:
    """The script that needs only PyTorch runs in `make test-runs`, the others in their own tier."""
    return pytest.param(program, marks=pytest.mark.runs if program == "fsdp2" else pytest.mark.programs)


@pytest.mark.parametrize("program", [_marked(program) for program in PROGRAMS])
def test_the_loss_is_gloos(program: str, tmp_path: Path) -> None:
    script, arguments, extra = PROGRAMS[program]
    losses = {}
    for backend in ("gloo", "smddp"):
        filled = [argument.format(backend=backend, folder=tmp_path / f"{backend}-out") for argument in arguments]
        losses[backend] = _train(tmp_path, script, backend, filled, extra.get(backend, {}))
    assert len(losses["gloo"]) >= 10 and len(losses["smddp"]) == len(losses["gloo"])
    worst = max(abs(ours - gloos) / gloos for ours, gloos in zip(losses["smddp"], losses["gloo"], strict=True))
    print(f"{program}: largest relative difference of {len(losses['gloo'])} losses: {worst:.2e}")
    assert worst <= 1e-5
