"""Runs the cost model (native/simulation/model), which computes the time of a job's sums on hosts with given costs."""

import json
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Tuple

import contenders

_PROGRAM = contenders.BUILD / "smdp_model"


def ask(
    hosts: int,
    ranks: int,
    buckets: List[Tuple[int, float]],
    costs: Mapping[str, float],
    schedule: str = "engine",
    dtype: str = "float32",
    options: Optional[Mapping[str, str]] = None,
) -> Dict[str, Any]:
    """The model's answer (native/simulation/model/model.h). ``buckets``: bytes, and seconds until they are ready.

    ``options``: the engine's options, by their variables. Call ``contenders.build()`` before.
    """
    lines = [f"hosts {hosts}", f"ranks_per_host {ranks}", f"schedule {schedule}", f"dtype {dtype}"]
    lines += [f"bucket {size} {ready!r}" for size, ready in buckets]
    lines += [f"cost {name} {value!r}" for name, value in costs.items()]
    lines += [f"option {name} {value}" for name, value in (options or {}).items()]
    completed = subprocess.run([str(_PROGRAM)], input="\n".join(lines), check=True, capture_output=True, text=True)
    answer: Dict[str, Any] = json.loads(completed.stdout)
    return answer
