"""What a job's script sees on its hosts."""

from __future__ import annotations

import json
from typing import Any

from tests.support.services.cloud import Cloud


def seen(cloud: Cloud, name: str) -> dict[str, dict[str, Any]]:
    found = (line.partition("looks ") for line in cloud.log(name) if "looks {" in line)
    return {head.partition(":")[0].strip("[] "): json.loads(text) for head, _, text in found}
