"""The folder that an image is built from: one Dockerfile, the sources of engine and entrypoint, and any wheels."""

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
    "native/pyproject.toml",
    "native/adapters",
    "native/engine",
    "native/include",
    "native/model",
    "native/python",
    "native/world",
    "containers/entrypoint/pyproject.toml",
    "containers/entrypoint/README.md",
    "containers/entrypoint/smdp_entrypoint",
)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "build")
_BLOCK = 1024 * 1024  # bytes read at once
_TIME = 315619200  # 1980-01-02, the first day that every archive can tell


@dataclass(frozen=True)
class Context:
    """A staged folder; ``content_hash`` is of every file in it and of the build arguments (64 hex digits)."""

    folder: Path
    dockerfile: Path
    content_hash: str


def source_root() -> Path:
    """Where the Dockerfiles and sources lie: beside this package in a checkout, inside it when it was installed.

    Raises:
        EnvironmentProblem: they are in neither place.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_image", package.parent):
        if (root / "containers" / "pytorch" / "Dockerfile").is_file():
            return root
    raise EnvironmentProblem("this installation of smdp-launch came without the image's sources: install its wheel")


def stage(recipe: Recipe, folder: Path, wheels: Path | None) -> Context:
    """Put together what the image is built from, in ``folder``, which must be empty.

    Args:
        wheels: a folder of wheels to install from before, or in place of, the package index.

    Raises:
        Refused: a build argument that the Dockerfile does not have.
        EnvironmentProblem: ``wheels`` holds none.
    """
    root = source_root()
    dockerfile = folder / "Dockerfile"
    shutil.copyfile(root / "containers" / recipe.framework / recipe.dockerfile, dockerfile)
    _check_arguments(recipe, dockerfile.read_text())
    for name in SOURCES:
        _copy(root / name, folder / name)
    (folder / "wheels").mkdir()
    # A folder without files does not travel with every tool.
    (folder / "wheels" / "README").write_text("Wheels that are installed before those of the index.\n")
    _settle(folder)
    for wheel in _wheels(wheels):
        _link_or_copy(wheel, folder / "wheels" / wheel.name)
    os.utime(folder / "wheels", (_TIME, _TIME))
    return Context(folder, dockerfile, _hash(folder, recipe.args))


def _check_arguments(recipe: Recipe, dockerfile: str) -> None:
    known = arguments(dockerfile)
    for name in recipe.args:
        # The recipe's own arguments fit its Dockerfile; this is about the person's.
        if name not in known:
            raise Refused(f"{recipe.dockerfile} has no build argument {name}; it has {', '.join(sorted(known))}")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_LEFT_OUT)
    else:
        shutil.copyfile(source, target)


def _settle(folder: Path) -> None:
    """Give everything one time: buildah takes a file with a new one for another file and builds its layers again."""
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (_TIME, _TIME))


def _wheels(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    found = sorted(folder.glob("*.whl"))
    if not found:
        raise EnvironmentProblem(f"{folder} holds no wheels (*.whl): fill it with `pip download`")
    return found


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
