"""The dated tables beside this file, read once."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


@functools.cache
def table(name: str) -> dict[str, Any]:
    """The table ``name``.json; it says its source and the day it was checked."""
    loaded: dict[str, Any] = json.loads((Path(__file__).parent / "dated" / f"{name}.json").read_text("utf-8"))
    return loaded
