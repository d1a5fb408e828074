"""The dated tables in the folder ``dated``, each read once."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


@functools.cache
def table(name: str) -> dict[str, Any]:
    """The table ``name``.json, with its source and the day on which it was checked."""
    loaded: dict[str, Any] = json.loads((Path(__file__).parent / "dated" / f"{name}.json").read_text("utf-8"))
    return loaded
