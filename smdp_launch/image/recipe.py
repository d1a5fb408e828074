"""The image to build: its versions and its build arguments."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from smdp_launch.catalog.frameworks import (
    TITLES,
    build,
    builds,
    native_cuda,
    native_image,
    native_images,
    native_python,
    native_supports,
)
from smdp_launch.catalog.registries import training_image
from smdp_launch.errors import Refused

#: The build argument for the version of each framework.
VERSION_ARGUMENT = {"pytorch": "TORCH", "tensorflow": "TENSORFLOW"}
_OWN, _DLC = "Dockerfile", "Dockerfile.dlc"
#: The region from which AWS's containers are pulled, as in Dockerfile.dlc.
_REGION = "us-east-1"
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
        version: such as "2.4.1", or "2.4" for its newest patch release; None for the default version.
        transformers: its version, if the image is to contain it.
        dlc: build on AWS's Deep Learning Container of ``version``, or on the ``BASE`` of ``args``.
        args: the user's build arguments, which override those of the recipe.

    Raises:
        Refused: there is no recipe for that version, or no container of AWS; ``transformers`` is not a version; or
            ``transformers`` or ``dlc`` is used with another framework than PyTorch.
    """
    if transformers is not None and not _VERSION.fullmatch(transformers):
        raise Refused(f"{transformers!r} is not a version of transformers: write a version such as 4.28.1")
    if framework != "pytorch" and (dlc or transformers is not None):
        raise Refused(f"{'--dlc' if dlc else '--transformers'} is only for PyTorch's image: {_INSTEAD}")
    version = version or str(_recipes()["default"][framework])
    own = {} if args is None else dict(args)
    base = _container(framework, version, cuda, own) if dlc else _base(framework, version, cuda)
    cuda_version = own.get("CUDA", (base.cuda or "") if cuda else "")
    python = own.get("PYTHON", base.python)
    build_args = {VERSION_ARGUMENT[framework]: base.version, **base.args, "CUDA": cuda_version, "PYTHON": python}
    if transformers is not None:
        build_args["TRANSFORMERS"] = transformers
    dockerfile = _DLC if dlc else _OWN
    return Recipe(framework, dockerfile, base.version, cuda_version or None, python, transformers, build_args | own)


class _Base(NamedTuple):
    """What an image is built on, and the build arguments that this needs."""

    version: str
    cuda: str | None
    python: str
    args: Mapping[str, str]


def _base(framework: str, version: str, cuda: bool) -> _Base:
    newest, with_cuda = native_image(framework, version), native_cuda(framework, version)
    if newest is None or with_cuda is None or not re.fullmatch(r"\d+\.\d+(?:\.\d+)?", version, re.ASCII):
        images = native_images(framework)
        known = ", ".join(images) if len(images) <= 2 else f"{images[0]} to {images[-1]}"
        raise Refused(f"there is no recipe for {TITLES[framework]} {version}; the recipes are for {known}")
    full = version if version.count(".") == 2 else newest
    args = _recipes()["args"][framework][with_cuda if cuda else "cpu"]
    return _Base(full, with_cuda, native_python(), args)


def _container(framework: str, version: str, cuda: bool, own: Mapping[str, str]) -> _Base:
    found = build(framework, version)
    is_described = own.keys() >= {"BASE", "PYTHON", *(("CUDA",) if cuda else ())}
    if found is None and is_described and _VERSION.fullmatch(version):
        return _Base(version, own.get("CUDA"), own["PYTHON"], {})
    if found is None or not native_supports(framework, found.version):
        known = [one.version for one in builds(framework) if native_supports(framework, one.version)]
        raise Refused(
            f"AWS has no container of {TITLES[framework]} {version} that the engine supports; choose one of: "
            f"{', '.join(known)}, or set --arg BASE=IMAGE --arg CUDA=VERSION --arg PYTHON=VERSION"
        )
    return _Base(found.version, found.cuda, found.python, {"BASE": training_image(found, _REGION)})


def arguments(dockerfile: str) -> dict[str, str]:
    """The build arguments that a Dockerfile's text declares, with their defaults."""
    return {match["name"]: match["default"] or "" for match in _ARGUMENT.finditer(dockerfile)}


@functools.cache
def _recipes() -> dict[str, Any]:
    recipes: dict[str, Any] = json.loads(Path(__file__).with_name("recipes.json").read_text("utf-8"))
    return recipes
