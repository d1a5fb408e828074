"""DeepSpeed's configuration file, as far as rules read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

#: Names of the option with the file.
OPTIONS = ("deepspeed", "deepspeed_config", "ds_config", "ds_config_path")
_LARGEST = 1 << 20


class DeepSpeed(NamedTuple):
    """The values of one configuration. None stands for ``auto``, for a missing value, and for one of a wrong type.

    Args:
        file: its name in the source folder.
        problem: why it cannot be read; the rest is empty then.
        stage: of ZeRO: 0 for none, 1 the states of the optimizer, 2 gradients too, 3 parameters too.
        offloads_optimizer, offloads_parameters: they are in the memory of the host.
    """

    file: str
    problem: str | None = None
    train_batch_size: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    bf16: bool = False
    fp16: bool = False
    stage: int = 0
    offloads_optimizer: bool = False
    offloads_parameters: bool = False


def read_deepspeed(path: Path, file: str) -> DeepSpeed:
    """Read the file at ``path``."""
    try:
        with path.open("rb") as opened:
            raw = opened.read(_LARGEST + 1)
        if len(raw) > _LARGEST:
            return DeepSpeed(file, f"it has more than {_LARGEST} bytes")
        data = json.loads(raw)
    except OSError as error:
        return DeepSpeed(file, f"it cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        return DeepSpeed(file, f"it is not JSON: {error}")
    if not isinstance(data, dict):
        return DeepSpeed(file, "it is not a JSON object")
    zero = _section(data, "zero_optimization")
    return DeepSpeed(
        file,
        train_batch_size=_number(data.get("train_batch_size")),
        micro_batch=_number(data.get("train_micro_batch_size_per_gpu")),
        accumulation=_number(data.get("gradient_accumulation_steps")),
        bf16=_section(data, "bf16").get("enabled") is True or _section(data, "bfloat16").get("enabled") is True,
        fp16=_section(data, "fp16").get("enabled") is True,
        stage=_number(zero.get("stage")) or 0,
        offloads_optimizer=_is_offloaded(zero, "offload_optimizer") or zero.get("cpu_offload") is True,
        offloads_parameters=_is_offloaded(zero, "offload_param"),
    )


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _is_offloaded(zero: Mapping[str, Any], name: str) -> bool:
    return _section(zero, name).get("device") in ("cpu", "nvme")


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
