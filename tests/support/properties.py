"""How many examples a property test tries that wants more or fewer than others."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(count: int, **more: Any) -> settings:
    """``count`` of them in the whole tier, the same part as of other property tests elsewhere."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 100), **more)
