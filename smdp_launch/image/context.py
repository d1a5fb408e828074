"""The folder that an image is built from: a Dockerfile, the sources of engine and entrypoint, and wheels."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.image.recipe import Recipe, arguments

#: What the Dockerfiles copy, relative to the root of the sources.
SOURCES = (
    "native/CMakeLists.txt",
    "native/LICENSE",
    "native/README.md",
    "native/pyproject.toml",
    "native/adapters",
    "native/clock",
    "native/engine",
    "native/include",
    "native/python",
    "native/simulation",
    "containers/entrypoint/LICENSE",
    "containers/entrypoint/pyproject.toml",
    "containers/entrypoint/README.md",
    "containers/entrypoint/smdp_entrypoint",
)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "build")
_BLOCK = 1024 * 1024  # bytes read at once
_TIME = 315619200  # 1980-01-02: every archive format supports this day


@dataclass(frozen=True)
class Context:
    """A staged folder. ``content_hash`` is the hash of its files and of the build arguments (64 hex digits)."""

    folder: Path
    dockerfile: Path
    content_hash: str


def source_root() -> Path:
    """The folder with the Dockerfiles and sources: beside this package in a checkout, inside an installed package.

    Raises:
        EnvironmentProblem: they are in neither place.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_image", package.parent):
        if (root / "containers" / "pytorch" / "Dockerfile").is_file():
            return root
    raise EnvironmentProblem(
        "this installation of smdp-launch has no sources for images: install smdp-launch from its wheel"
    )


def stage(recipe: Recipe, folder: Path, wheels: Path | None) -> Context:
    """Copy everything that the image is built from to ``folder``, which must be empty.

    Args:
        wheels: a folder of wheels that pip uses before, or instead of, the package index.

    Raises:
        Refused: the Dockerfile does not have a build argument of the recipe.
        EnvironmentProblem: there are no wheels in ``wheels``.
    """
    root = source_root()
    dockerfile = folder / "Dockerfile"
    shutil.copyfile(root / "containers" / recipe.framework / recipe.dockerfile, dockerfile)
    _check_arguments(recipe, dockerfile.read_text("utf-8"))
    for name in SOURCES:
        _copy(root / name, folder / name)
    (folder / "wheels").mkdir()
    # Some tools do not send empty folders.
    (folder / "wheels" / "README").write_text("pip installs these wheels before those of the package index.\n", "utf-8")
    _set_times(folder)
    for wheel in _wheels(wheels):
        _link_or_copy(wheel, folder / "wheels" / wheel.name)
    os.utime(folder / "wheels", (_TIME, _TIME))
    return Context(folder, dockerfile, _hash(folder, recipe.args))


def _check_arguments(recipe: Recipe, dockerfile: str) -> None:
    known = arguments(dockerfile)
    for name in recipe.args:
        # Only the user's arguments can be unknown.
        if name not in known:
            raise Refused(f"{recipe.dockerfile} has no build argument {name}; it has {', '.join(sorted(known))}")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_LEFT_OUT)
    else:
        shutil.copyfile(source, target)


def _set_times(folder: Path) -> None:
    """Give all files the same time: buildah builds a layer again if the time of a file changes."""
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (_TIME, _TIME))


def _wheels(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise EnvironmentProblem(f"{folder} contains no wheels (*.whl): fill it with `pip download`")
    return wheels


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _hash(folder: Path, args: Mapping[str, str]) -> str:
    total = hashlib.sha256(json.dumps(dict(args), sort_keys=True).encode())
    for path in _files(folder):
        total.update(f"\0{path.relative_to(folder).as_posix()}\0{_file_hash(path)}".encode())
    return total.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _file_hash(path: Path) -> str:
    checksum = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum.update(block)
    return checksum.hexdigest()
