"""What a measurement ran on: the GPUs, their driver, MIG, torch, the processors."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import sanitizer

_QUERY = """
import json, torch
from smdp_engine import cuda_on_cpu
if {emulated}: cuda_on_cpu.install()
gpus = []
if torch.cuda.is_available():
    for index in range(torch.cuda.device_count()):
        one = torch.cuda.get_device_properties(index)
        gpus.append({{"name": one.name, "memory": one.total_memory, "capability": f"{{one.major}}.{{one.minor}}"}})
print(json.dumps({{"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}}))
"""


_QUERY_LIMIT_S = 600


def describe(kind: str) -> Dict[str, Any]:
    """Raises:
    RuntimeError: torch or the engine cannot be imported.
    """
    environment = {**os.environ, "LOCAL_WORLD_SIZE": "1"}
    command = [sys.executable, "-c", _QUERY.format(emulated=kind != "cuda")]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_QUERY_LIMIT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{sys.executable} has not imported torch after {_QUERY_LIMIT_S} s") from None
    if ran.returncode != 0:
        reason = (ran.stderr.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"{sys.executable} cannot use torch and smdp_engine: {reason}")
    found: Dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    found.update(
        device=kind,
        python=platform.python_version(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        kernel=platform.release(),
        driver=_nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").splitlines()[:1],
        listed=listed(_nvidia_smi("-L")),
        launch_blocking=os.environ.get("CUDA_LAUNCH_BLOCKING", ""),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        sanitizer=sanitizer.found_at(),
    )
    return found


def why_no_gpu(found: Dict[str, Any]) -> Optional[str]:
    if found["gpus"]:
        return None
    built = f"CUDA {found['cuda']}" if found["cuda"] else "no CUDA"
    driver = ", the driver lists some" if found["listed"] else ""
    return f"no GPU: torch {found['torch']}, built for {built}, sees none{driver}"


def listed(text: str) -> List[Dict[str, str]]:
    """The GPUs of ``nvidia-smi -L``, and the MIG devices below each."""
    found: List[Dict[str, str]] = []
    for line in text.splitlines():
        match = re.match(r"\s*(GPU|MIG)\s+(.*?)\s*\(UUID: ([^)]*)\)", line)
        if match:
            found.append({"kind": match[1], "name": re.sub(r"^\d+: ", "", match[2]), "uuid": match[3]})
    return found


def lines(found: Dict[str, Any]) -> List[str]:
    gpus = [f"{one['name']}, {one['memory'] / (1 << 30):.0f} GiB" for one in found["gpus"]]
    migs = [one["name"] for one in found["listed"] if one["kind"] == "MIG"]
    return [
        f"GPU: {'; '.join(gpus) or 'none'}; driver {(found['driver'] or ['none'])[0]}",
        f"MIG devices: {'; '.join(migs) or 'none'}",
        f"torch {found['torch']}, CUDA {found['cuda']}, Python {found['python']}",
        f"{found['processor']}, {found['cores']} cores, Linux {found['kernel']}",
        f"CUDA_LAUNCH_BLOCKING={found['launch_blocking'] or 'unset'}, "
        f"CUDA_VISIBLE_DEVICES={found['visible'] or 'unset'}",
        f"compute-sanitizer: {found['sanitizer'] or 'not installed'}",
    ]


def _nvidia_smi(*arguments: str) -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    try:
        ran = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout if ran.returncode == 0 else ""


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"model name\s*:\s*(.*)", text)
    return found[1] if found else platform.machine()
