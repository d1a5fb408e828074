"""The number of examples for property tests that need more or fewer than others."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(count: int, **more: Any) -> settings:
    """Settings for ``count`` examples in the whole tier, and for the same share as other tests in other tiers."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 100), **more)
