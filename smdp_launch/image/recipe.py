"""The image to build: its versions and its build arguments."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.errors import Refused

#: The build argument for the version of each framework.
VERSION_ARGUMENT = {"pytorch": "TORCH", "tensorflow": "TENSORFLOW"}
_OWN, _DLC = "Dockerfile", "Dockerfile.dlc"
_VERSION = re.compile(r"\d+(?:\.\w+)*", re.ASCII)
_INSTEAD = (
    "see docs/how-to/own-image.md to install the engine in another image, or list packages in requirements.txt beside "
    "the script"
)
_ARGUMENT = re.compile(r"^ARG (?P<name>[A-Z][A-Z0-9_]*)(?:=(?P<default>\S*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """An image to build.

    Args:
        dockerfile: name of the file in ``containers/FRAMEWORK``.
        cuda: such as "11.8"; None if the image is for CPUs.
        args: build arguments that differ from the Dockerfile's defaults.
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
        """Such as ``2.0.1-cu118-py310-0123456789ab``: the versions, then the hash of the image's inputs."""
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
        version: None for the default version.
        transformers: its version, if the image is to contain it.
        dlc: build on AWS's Deep Learning Container.
        args: the user's build arguments, which override those of the recipe.

    Raises:
        Refused: there is no recipe for that version, or for it with CUDA; ``transformers`` is not a version; or
            ``transformers`` or ``dlc`` is used with another framework than PyTorch.
    """
    known = _recipes().get(framework, {})
    version = version or _recipes()["default"][framework]
    defaults = known.get(version, {}).get("cuda" if cuda else "cpu")
    if defaults is None:
        raise Refused(_unknown(f"{framework} {version}", cuda=cuda, known=known))
    if transformers is not None and not _VERSION.fullmatch(transformers):
        raise Refused(f"{transformers!r} is not a version of transformers: write a version such as 4.28.1")
    if framework != "pytorch" and (dlc or transformers is not None):
        raise Refused(f"{'--dlc' if dlc else '--transformers'} is only for PyTorch's image: {_INSTEAD}")
    own = {} if args is None else dict(args)
    cuda_version = own.get("CUDA", defaults["cuda"] or "")
    python = own.get("PYTHON", defaults["python"])
    build_args = {VERSION_ARGUMENT[framework]: version, **({} if dlc else defaults["args"])}
    build_args |= {"CUDA": cuda_version, "PYTHON": python}
    if transformers is not None:
        build_args["TRANSFORMERS"] = transformers
    dockerfile = _DLC if dlc else _OWN
    return Recipe(framework, dockerfile, version, cuda_version or None, python, transformers, build_args | own)


def arguments(dockerfile: str) -> dict[str, str]:
    """The build arguments that a Dockerfile's text declares, with their defaults."""
    return {match["name"]: match["default"] or "" for match in _ARGUMENT.finditer(dockerfile)}


def _unknown(what: str, *, cuda: bool, known: Mapping[str, Mapping[str, Any]]) -> str:
    kinds = ", ".join(f"{one} ({' or '.join('--' + kind for kind in kinds)})" for one, kinds in known.items())
    return f"there is no recipe for {what} {'with CUDA' if cuda else 'for CPUs'}; choose one of: {kinds or 'none'}"


@functools.cache
def _recipes() -> dict[str, Any]:
    recipes: dict[str, Any] = json.loads(Path(__file__).with_name("recipes.json").read_text("utf-8"))
    return recipes
