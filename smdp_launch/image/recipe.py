"""Which image is built: the versions in it, and the build arguments that say so."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.errors import Refused

#: The build argument that has a framework's version.
VERSION_ARGUMENT = {"pytorch": "TORCH", "tensorflow": "TENSORFLOW"}
_OWN, _DLC = "Dockerfile", "Dockerfile.dlc"
_VERSION = re.compile(r"\d+(?:\.\w+)*", re.ASCII)
_INSTEAD = (
    "docs/byoc.md tells how the engine goes into any image, and requirements.txt beside the script brings packages"
)
_ARGUMENT = re.compile(r"^ARG (?P<name>[A-Z][A-Z0-9_]*)(?:=(?P<default>\S*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """An image to build.

    Args:
        dockerfile: name of the file in ``containers/FRAMEWORK``.
        cuda: such as "11.8"; None where the image is for CPUs.
        args: what differs from the Dockerfile's own defaults.
    """

    framework: str
    dockerfile: str
    version: str
    cuda: str | None
    python: str
    transformers: str | None
    args: Mapping[str, str]

    @property
    def repository(self) -> str:
        return f"smdp-{self.framework}{'-dlc' if self.dockerfile == _DLC else ''}"

    def tag(self, content_hash: str) -> str:
        """Such as ``2.0.1-cu118-py310-0123456789ab``: what is in it, then the hash of what it is made from."""
        processor = "cpu" if self.cuda is None else f"cu{self.cuda.replace('.', '')}"
        words = [self.version.partition("+")[0], processor, f"py{self.python.replace('.', '')}"]
        if self.transformers is not None:
            words.append(f"transformers{self.transformers}")
        return "-".join([*words, content_hash[:12]])


def recipe(
    framework: str,
    version: str | None,
    *,
    cuda: bool,
    transformers: str | None = None,
    dlc: bool = False,
    args: Mapping[str, str] | None = None,
) -> Recipe:
    """The image of a framework's ``version``, with CUDA or for CPUs.

    Args:
        version: None for the one that is built unless another is asked for.
        args: build arguments of the person's own; they go before what the recipe says.

    Raises:
        Refused: nothing is known of that version, or of it with CUDA; ``transformers`` is no version; or it, or the
            container of AWS, was asked for with another framework than PyTorch.
    """
    known = _recipes().get(framework, {})
    version = version or _recipes()["default"][framework]
    found = known.get(version, {}).get("cuda" if cuda else "cpu")
    if found is None:
        raise Refused(_unknown(f"{framework} {version}", cuda=cuda, known=known))
    if transformers is not None and not _VERSION.fullmatch(transformers):
        raise Refused(f"{transformers!r} is no version of transformers, such as 4.28.1")
    if framework != "pytorch" and (dlc or transformers is not None):
        raise Refused(f"{'--dlc' if dlc else '--transformers'} is for PyTorch's image: {_INSTEAD}")
    given = {} if args is None else dict(args)
    held = given.get("CUDA", found["cuda"] or "")
    python = given.get("PYTHON", found["python"])
    chosen = {VERSION_ARGUMENT[framework]: version, **({} if dlc else found["args"]), "CUDA": held, "PYTHON": python}
    if transformers is not None:
        chosen["TRANSFORMERS"] = transformers
    return Recipe(framework, _DLC if dlc else _OWN, version, held or None, python, transformers, chosen | given)


def arguments(dockerfile: str) -> dict[str, str]:
    """The build arguments that a Dockerfile's text declares, with their defaults."""
    return {found["name"]: found["default"] or "" for found in _ARGUMENT.finditer(dockerfile)}


def _unknown(what: str, *, cuda: bool, known: Mapping[str, Mapping[str, Any]]) -> str:
    kinds = ", ".join(f"{one} ({' or '.join('--' + kind for kind in kinds)})" for one, kinds in known.items())
    return f"no image of {what} {'with CUDA' if cuda else 'for CPUs'} is known; there are {kinds or 'none'}"


@functools.cache
def _recipes() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("recipes.json").read_text())
    return found
