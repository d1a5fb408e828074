"""The images of the tier, built once: by the command that a person uses, from wheels of this machine's own index."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from smdp_launch.localcloud.client import Endpoint, private
from tests.conftest import LAUNCHER, ROOT, clean_environment
from tests.images.base import base_image, buildah, run_in
from tests.localcloud.conftest import open_cloud, state_dir

__all__ = ["open_cloud", "state_dir"]
TORCH = "2.13.0"
NEEDED = ("buildah", "debootstrap", "docker-registry", "ip", "nsenter")
DOCKERFILES = ROOT / "containers" / "pytorch"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever asks for this tier is told what it lacks; a test that is left out proves nothing."""
    here = [item for item in items if item.get_closest_marker("images")]
    missing = [one for one in NEEDED if shutil.which(one) is None]
    if os.geteuid() != 0:
        missing.append("root")
    if here and missing:
        reason = f"the images tier lacks {', '.join(missing)}: make test-containers says how to get them"
        for item in here:
            item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class Recipe:
    """What `image build` is told here: no CUDA, no index, this machine's distribution."""

    base: str
    python: str
    wheels: Path

    def build(self, *more: str) -> subprocess.CompletedProcess[str]:
        arguments = {"BASE": self.base, "INDEX": "off", "PYTHON": self.python}
        if "--dlc" not in more:
            arguments["EFA"] = "distribution"
        flags = [word for name, value in arguments.items() for word in ("--arg", f"{name}={value}")]
        return launcher(
            "image",
            "build",
            "--tool",
            "buildah",
            "--version",
            TORCH,
            "--cpu",
            "--wheels",
            str(self.wheels),
            *flags,
            *more,
        )


def launcher(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAUNCHER, *arguments],
        capture_output=True,
        text=True,
        input=text,
        env=clean_environment(**environment),
        check=False,
    )


def pins() -> list[str]:
    """The wheels that the Dockerfile installs, transformers aside."""
    text = (DOCKERFILES / "Dockerfile").read_text()
    found = set(re.findall(r"\b((?:pip|cmake|ninja|scikit-build-core|hatchling)==[\d.]+)", text))
    numpy = re.search(r"^ARG NUMPY=(\S+)", text, re.MULTILINE)
    assert numpy is not None
    return sorted([*found, f"numpy=={numpy[1]}", f"torch=={TORCH}"])


def _download(python: str) -> Path:
    """The wheels, kept beside the other things that make builds."""
    wanted = pins()
    key = hashlib.sha256(" ".join([python, *wanted]).encode()).hexdigest()[:12]
    folder = ROOT / "build" / f"wheels-{key}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}-{os.getpid()}")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--only-binary=:all:",
            f"--python-version={python}",
        ]
        subprocess.run([*command, f"--dest={draft}", *wanted], check=True)
        draft.rename(folder)
    return folder


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    base = base_image()
    python = run_in(base, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    return Recipe(base, python, _download(python))


@pytest.fixture(scope="session")
def image(recipe: Recipe) -> str:
    """The name of the built PyTorch image."""
    built = recipe.build()
    assert built.returncode == 0, built.stderr
    return built.stdout.strip()


@pytest.fixture
def registry_cloud(tmp_path: Path) -> Iterator[Endpoint]:
    """A local cloud whose ECR has a registry beside it."""
    with private(tmp_path / "cloud") as endpoint:
        yield endpoint


@pytest.fixture
def tiny() -> Iterator[Callable[..., str]]:
    """Makes empty images with the settings given."""
    made = []

    def make(name: str, *settings: str) -> str:
        container = buildah("from", "scratch")
        buildah("config", *settings, container)
        buildah("commit", "--quiet", "--format", "docker", container, name)
        buildah("rm", container)
        made.append(name)
        return name

    yield make
    for name in made:
        forget(name)


def forget(name: str) -> None:
    """Remove an image with all its names; nothing happens where it is gone."""
    found = subprocess.run(
        ["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", name],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == 0:
        buildah("rmi", "--force", found.stdout.strip())
