"""The three distributions: their licences, the versions of their build tools, and the packages of the templates."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from smdp_launch.catalog.frameworks import native_python
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.sdk.installed import sdk
from tests.conftest import ROOT
from tools.wheel_platform import tag_wheel

PROJECTS = (".", "containers/entrypoint", "native")
TEMPLATES = sorted(path.parent.name for path in ROOT.glob("templates/*/requirements.txt"))
NO_INDEX = "from versions: none"
METADATA = """
import importlib, sys
backend = importlib.import_module(sys.argv[1])
print(backend.prepare_metadata_for_build_wheel(sys.argv[2]))
"""


def pip(*arguments: str | Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *arguments], capture_output=True, text=True, check=False
    )


def install(*arguments: str | Path) -> None:
    """pip install; skips the test if no package index can be reached."""
    done = pip("install", "--quiet", "--only-binary=:all:", *arguments)
    if NO_INDEX in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("template", TEMPLATES)
def test_requirements_of_each_template_exist_for_the_python_of_the_images(template: str, tmp_path: Path) -> None:
    file = ROOT / "templates" / template / "requirements.txt"
    python = [f"--python-version={native_python()}", "--target", tmp_path]
    install("--dry-run", "--no-deps", *python, "-r", file)


def backend(project: str) -> tuple[str, str, str]:
    """The module of a project's build backend, its package, and the oldest version of it that the project accepts."""
    text = (ROOT / project / "pyproject.toml").read_text()
    required = re.search(r'^requires = \["([a-z-]+)>=([\d.]+)"\]\nbuild-backend = "(.+)"$', text, re.MULTILINE)
    assert required is not None
    return required[3], required[1], required[2]


@pytest.mark.parametrize("version", ["2", "3"])
def test_missing_sdk_names_the_package_of_the_extra(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(EnvironmentProblem) as raised:
        sdk("sagemaker", version=version)
    (extra,) = re.findall(rf"^sdk-v{version} = (.+)$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    package = str(raised.value).partition("pip install ")[2].strip("'")
    assert f'"{package}"' in extra


@pytest.mark.runs
@pytest.mark.parametrize("project", PROJECTS)
def test_oldest_accepted_build_tool_reads_the_project(project: str, tmp_path: Path) -> None:
    module, package, oldest = backend(project)
    install("--target", tmp_path / "tools", f"{package}=={oldest}.0")
    done = subprocess.run(
        [sys.executable, "-c", METADATA, module, str(tmp_path)],
        cwd=ROOT / project,
        env={"PYTHONPATH": str(tmp_path / "tools"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metadata = (tmp_path / done.stdout.splitlines()[-1] / "METADATA").read_text()
    assert "License-Expression: Apache-2.0\nLicense-File: LICENSE\n" in metadata


def test_every_command_requires_the_build_tools_of_the_projects() -> None:
    bounds = dict(backend(one)[1:] for one in PROJECTS)
    named = ("pyproject.toml", "Makefile", "tools/build_wheels.sh", "docs/install.md", "native/tests/matrix.sh")
    for name in (*named, "smdp_launch/doctor/installer.py"):
        for package, version in re.findall(r"(hatchling|scikit-build-core)>=([\d.]+)", (ROOT / name).read_text()):
            assert version == bounds[package], (name, package)


def test_every_distribution_has_the_licence_of_the_repository() -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    for project in PROJECTS:
        assert (ROOT / project / "LICENSE").read_bytes() == licence
        assert '\nlicense-files = ["LICENSE"]\n' in (ROOT / project / "pyproject.toml").read_text()


def test_wheel_is_refused_where_the_c_library_is_older_than_that_of_the_build(tmp_path: Path) -> None:
    wheel = tmp_path / "example-1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("example.py", "")
        archive.writestr("example-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: example\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n"
        archive.writestr("example-1.0.dist-info/WHEEL", tags)
        archive.writestr(
            "example-1.0.dist-info/RECORD",
            f"example.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
            f"example-1.0.dist-info/WHEEL,sha256=old,{len(tags)}\nexample-1.0.dist-info/RECORD,,\n",
        )
    named = tag_wheel(wheel, "2.36")
    assert [path.name for path in tmp_path.iterdir()] == ["example-1.0-py3-none-manylinux_2_36_x86_64.whl"]
    with zipfile.ZipFile(named) as archive:
        assert b"Tag: py3-none-manylinux_2_36_x86_64\n" in archive.read("example-1.0.dist-info/WHEEL")
        assert b"sha256=old" not in archive.read("example-1.0.dist-info/RECORD")
    for glibc, code in (("2_35", 1), ("2_36", 0)):
        platform = ["--only-binary=:all:", f"--platform=manylinux_{glibc}_x86_64"]
        done = pip("install", "--no-index", "--no-deps", "--target", tmp_path / glibc, *platform, named)
        assert done.returncode == code, done.stderr
    assert tag_wheel(named, "2.36") == named


def test_make_wheels_names_the_c_library_of_the_build() -> None:
    assert '"$python" tools/wheel_platform.py "$target"/*.whl' in (ROOT / "tools" / "build_wheels.sh").read_text()
