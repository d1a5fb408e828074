"""The program of native/model: how long a job's sums take on hosts that are described by their costs."""

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
    """Its answer (native/model/model.h); ``buckets``: bytes, and seconds until they are ready.

    ``options``: of the engine, by their variables. ``contenders.build()`` must have been called.
    """
    lines = [f"hosts {hosts}", f"ranks_per_host {ranks}", f"schedule {schedule}", f"dtype {dtype}"]
    lines += [f"bucket {size} {ready!r}" for size, ready in buckets]
    lines += [f"cost {name} {value!r}" for name, value in costs.items()]
    lines += [f"option {name} {value}" for name, value in (options or {}).items()]
    done = subprocess.run([str(_PROGRAM)], input="\n".join(lines), check=True, capture_output=True, text=True)
    answer: Dict[str, Any] = json.loads(done.stdout)
    return answer
