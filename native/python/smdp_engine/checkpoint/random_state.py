"""The state of this rank's random number generators."""

import importlib
import random
import sys
from typing import Any, Dict, Mapping, Optional, Tuple

from .ranks import rank, world_size


def random_state() -> Dict[str, Any]:
    torch: Any = importlib.import_module("torch")
    state: Dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        state["numpy"] = sys.modules["numpy"].random.get_state()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    torch: Any = importlib.import_module("torch")
    random.setstate(_tuples(state["python"]))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])


def restore_random_state(state: Optional[Mapping[str, Any]], saved_by: int, group: Any) -> None:
    """Restore this rank's ``state`` of a checkpoint of ``saved_by`` ranks. It is None if the number of ranks
    differs now, which rank 0 reports."""
    if state is not None:
        set_random_state(state)
    elif rank(group) == 0:
        sys.stderr.write(
            f"smdp: the checkpoint has the random state of {saved_by} ranks, and there are {world_size(group)}: "
            "the random state is not restored\n"
        )


def _tuples(value: Any) -> Tuple[Any, ...]:
    version, internal, gauss = value
    return version, tuple(internal), gauss
