"""What all trackers know of the run, from the environment."""

import json
import os
from typing import Dict, Optional

_ML = "/opt/ml"


def setting(name: str) -> Optional[str]:
    """The value of ``SMDP_TRACKING_<name>``; None if it is not set or empty."""
    return os.environ.get(f"SMDP_TRACKING_{name}") or None


def run_name() -> Optional[str]:
    """The job's name; None outside of a job."""
    return os.environ.get("TRAINING_JOB_NAME") or None


def hyperparameters() -> Dict[str, str]:
    """The script's hyperparameters as texts."""
    try:
        values = json.loads(os.environ.get("SM_HPS") or "{}")
    except ValueError:
        return {}
    if not isinstance(values, dict):
        return {}
    return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def in_container(path: str) -> str:
    """The place of a path below /opt/ml on a simulated host that has no namespace of its own."""
    root = os.environ.get("SMDP_ML_ROOT")
    if root and (path == _ML or path.startswith(f"{_ML}/")):
        return root + path[len(_ML) :]
    return path
