"""Hugging Face's training images: pairs of a transformers version and a framework version."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from smdp_launch.catalog.frameworks import matches
from smdp_launch.catalog.tables import table


class Pair(NamedTuple):
    """One image: a transformers version on a framework version.

    Args:
        smddp: whether the image contains AWS's data-parallel library.
    """

    transformers: str
    framework: str
    version: str
    python: str
    cuda: str
    smddp: bool
    image_tag: str

    @property
    def repository(self) -> str:
        return str(table("frameworks")["transformers"]["repositories"][self.framework])


@functools.cache
def pairs() -> tuple[Pair, ...]:
    rows: list[dict[str, Any]] = table("frameworks")["transformers"]["pairs"]
    return tuple(Pair(**row) for row in rows)


def transformers_versions(framework: str | None = None) -> list[str]:
    """Oldest first."""
    return list(dict.fromkeys(one.transformers for one in pairs() if framework in (None, one.framework)))


def pairs_of(transformers: str) -> list[Pair]:
    """The images of ``transformers``; "4.6" means 4.6.x."""
    return [one for one in pairs() if matches(one.transformers, transformers)]


def pair(transformers: str, framework: str, version: str) -> Pair | None:
    """The image of the two versions. A shortened version means the newest one that starts with it."""
    of_framework = (one for one in reversed(pairs_of(transformers)) if one.framework == framework)
    return next((one for one in of_framework if matches(one.version, version)), None)
