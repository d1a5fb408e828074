"""The images of the test tier, built once with `image build`, from wheels of the local machine's package index."""

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

from smdp_launch.localcloud.client.connect import Endpoint, private
from tests.conftest import LAUNCHER, ROOT, clean_environment
from tests.images.base import base_image, buildah, folder_of, run_in
from tests.localcloud.conftest import open_cloud, state_dir

__all__ = ["open_cloud", "state_dir"]
TORCH = "2.13.0"
#: The images of the tier, and the Python of the base; None for the distribution's Python.
FRAMEWORKS = {"pytorch": [(TORCH, None)], "tensorflow": [("2.14.1", None), ("2.11.1", "3.10")]}
_PACKAGE = {"pytorch": "torch", "tensorflow": "tensorflow-cpu"}
NEEDED = ("buildah", "debootstrap", "docker-registry", "ip", "nsenter")
DOCKERFILES = ROOT / "containers"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fail if the machine lacks a tool for this tier: a skipped test proves nothing."""
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
    """The options of `image build` for the tests: no CUDA, no package index, the local machine's distribution."""

    framework: str
    version: str
    base: str
    python: str
    wheels: Path

    @property
    def module(self) -> str:
        return {"pytorch": "torch", "tensorflow": "tensorflow"}[self.framework]

    @property
    def proof(self) -> str:
        """A script that fails if the engine's adapter for the framework cannot be loaded."""
        return {
            "pytorch": "from smdp_engine import torch_backend; torch_backend.register(); print('loaded')",
            "tensorflow": "from smdp_engine.tensorflow import library; library.operations(); print('loaded')",
        }[self.framework]

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
            "--framework",
            self.framework,
            "--version",
            self.version,
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


def pins(framework: str, version: str) -> list[str]:
    """The wheels that the Dockerfile installs, without transformers."""
    text = (DOCKERFILES / framework / "Dockerfile").read_text()
    found = set(re.findall(r"\b((?:pip|cmake|ninja|scikit-build-core|hatchling)==[\d.]+)", text))
    numpy = re.search(r"^ARG NUMPY=(\S+)", text, re.MULTILINE)
    assert numpy is not None
    return sorted([*found, f"numpy=={numpy[1]}", f"{_PACKAGE[framework]}=={version}"])


def _download(interpreter: Path, python: str, wanted: list[str]) -> Path:
    """Download the wheels to the build folder. pip chooses wheels for its own interpreter's version."""
    key = hashlib.sha256(" ".join([python, *wanted]).encode()).hexdigest()[:12]
    folder = ROOT / "build" / f"wheels-{key}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}-{os.getpid()}")
        command = [
            interpreter,
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


def _recipe(framework: str, version: str, wanted_python: str | None) -> Recipe:
    base = base_image(wanted_python)
    python = run_in(base, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    interpreter = folder_of(wanted_python) / "bin" / f"python{wanted_python}" if wanted_python else Path(sys.executable)
    wheels = _download(interpreter, python, pins(framework, version))
    return Recipe(framework, version, base, python, wheels)


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """The recipe of PyTorch's image."""
    return _recipe("pytorch", *FRAMEWORKS["pytorch"][0])


@pytest.fixture(scope="session")
def image(recipe: Recipe) -> str:
    """The name of the built PyTorch image."""
    return _built(recipe)


@pytest.fixture(
    scope="session",
    params=[(framework, *one) for framework, versions in FRAMEWORKS.items() for one in versions],
    ids=lambda one: f"{one[0]}-{one[1]}",
)
def any_recipe(request: pytest.FixtureRequest) -> Recipe:
    return _recipe(*request.param)


@pytest.fixture(scope="session")
def any_image(any_recipe: Recipe) -> str:
    """The name of a built image, for each image in turn."""
    return _built(any_recipe)


def _built(recipe: Recipe) -> str:
    built = recipe.build()
    assert built.returncode == 0, built.stderr
    return built.stdout.strip()


@pytest.fixture
def registry_cloud(tmp_path: Path) -> Iterator[Endpoint]:
    """A local cloud whose ECR has a registry."""
    with private(tmp_path / "cloud") as endpoint:
        yield endpoint


@pytest.fixture
def tiny() -> Iterator[Callable[..., str]]:
    """A function that creates an empty image with the given settings."""
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
    """Remove an image with all its names, if it exists."""
    found = subprocess.run(
        ["buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", name],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode == 0:
        buildah("rmi", "--force", found.stdout.strip())
