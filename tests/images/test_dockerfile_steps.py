"""Steps of the Dockerfiles that decide or refuse, run by bash with programs in place of those of a base image."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.image.recipe import arguments
from tests.conftest import ROOT
from tools.check_dockerfiles import parse

OWN = ("pytorch/Dockerfile", "tensorflow/Dockerfile")
DLC = "pytorch/Dockerfile.dlc"


def step(dockerfile: str, containing: str) -> str:
    """The RUN instruction that contains a text."""
    text = (ROOT / "containers" / dockerfile).read_text()
    (found,) = [one.text for one in parse(text).named("RUN") if containing in one.text]
    return found


def program(folder: Path, name: str, text: str = "exit 0") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def run(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step in which each path of the image is a path below ``folder``."""
    moved = re.sub(r"/(var/(?:lib|cache|log)|tmp/efa|etc/os-release|cxx|opt/amazon)\b", rf"{folder}/\1", text)
    removed = [word for one in re.findall(r"rm -rf ([^&;]*)", moved) for word in one.split()]
    assert all(word.startswith(f"{folder}/") for word in removed)
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", **variables}
    return subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", moved], capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base whose apt-get installs nothing, and records its arguments."""
    program(tmp_path / "bin", "apt-get", f'echo "$@" >> {tmp_path}/installed')
    program(tmp_path / "bin", "add-apt-repository", f'echo "add $@" >> {tmp_path}/installed')
    program(tmp_path / "bin", "python3", f'exec {sys.executable} "$@"')
    return tmp_path


def installed(base: Path) -> str:
    file = base / "installed"
    return file.read_text() if file.exists() else ""


def libfabric(base: Path, major: int, minor: int) -> None:
    """A libfabric.so.1 of a version, where the installer of EFA puts it."""
    folder = base / "opt" / "amazon" / "efa" / "lib"
    folder.mkdir(parents=True)
    source = base / "fabric.c"
    source.write_text(f"unsigned fi_version(void) {{ return {major} << 16 | {minor}; }}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libfabric.so.1", source], check=True)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")
@pytest.mark.parametrize("dockerfile", OWN)
@pytest.mark.parametrize(("version", "code"), [((1, 11), 1), ((1, 14), 0), ((1, 17), 0), ((2, 1), 0)])
def test_build_fails_with_a_libfabric_that_the_engine_refuses(
    base: Path, dockerfile: str, version: tuple[int, int], code: int
) -> None:
    libfabric(base, *version)
    done = run(step(dockerfile, "libfabric1"), base, EFA="distribution", NCCL="off", EFA_SHA256="off")
    assert done.returncode == code, done.stderr
    assert "libfabric1" in installed(base)
    if code:
        assert "libfabric 1.11 is too old: the engine needs 1.14 or later." in done.stderr
        assert "Use --arg EFA=1.38.1, or a base with a newer libfabric, such as Debian 12" in done.stderr


def test_libfabric_of_the_default_installer_has_rdma_without_a_variable() -> None:
    """From 1.18 on, the engine asks for the interface with which EFA uses the RDMA of ml.p4d."""
    for dockerfile in OWN:
        text = (ROOT / "containers" / dockerfile).read_text()
        assert arguments(text)["EFA"] == "1.38.1"
        assert "Use --arg EFA=1.38.1" in text
    assert "EFA installer 1.38.1 has libfabric 1.22.0" in (ROOT / "smdp_launch" / "image" / "recipes.json").read_text()
    for page in ("how-to/images.md", "reference/fabric.md"):
        assert "1.38.1" in (ROOT / "docs" / page).read_text()


@pytest.mark.parametrize("dockerfile", OWN)
def test_archive_with_another_checksum_is_not_unpacked(base: Path, dockerfile: str) -> None:
    program(base / "bin", "curl", f"echo archive > {base}/tmp/efa/archive")
    program(base / "bin", "tar", f"touch {base}/unpacked; exit 7")
    expected = arguments((ROOT / "containers" / dockerfile).read_text())["EFA_SHA256"]
    assert re.fullmatch("[0-9a-f]{64}", expected)
    text = step(dockerfile, "libfabric1")
    done = run(text, base, EFA="1.38.1", NCCL="off", EFA_SHA256=expected)
    actual = hashlib.sha256(b"archive\n").hexdigest()
    assert done.returncode == 1
    assert f"EFA installer 1.38.1 has the checksum {actual}  -, not EFA_SHA256={expected}" in done.stderr
    assert not (base / "unpacked").exists()
    for allowed in (actual, "off"):
        shutil.rmtree(base / "tmp" / "efa", ignore_errors=True)
        assert run(text, base, EFA="1.38.1", NCCL="off", EFA_SHA256=allowed).returncode == 7
        assert (base / "unpacked").exists()


def os_release(base: Path, name: str, version: str) -> None:
    (base / "etc").mkdir(exist_ok=True)
    (base / "etc" / "os-release").write_text(f'ID={name}\nVERSION_ID="{version}"\nPRETTY_NAME="{name} {version}"\n')


def compiler(base: Path, name: str, version: str) -> None:
    program(base / "bin", name, f"echo {version}")


@pytest.mark.parametrize(
    ("name", "version", "added"), [("ubuntu", "20.04", True), ("ubuntu", "22.04", False), ("debian", "12", False)]
)
def test_ubuntu_20_gets_the_cxx_library_of_newer_compilers(base: Path, name: str, version: str, added: bool) -> None:
    os_release(base, name, version)
    done = run(step(DLC, "toolchain"), base)
    assert done.returncode == 0, done.stderr
    lines = ["add -y ppa:ubuntu-toolchain-r/test", "install -y --no-install-recommends libstdc++6"]
    assert [one for one in lines if one in installed(base)] == (lines if added else [])


def test_newer_cxx_library_that_cannot_be_installed_ends_the_build(base: Path) -> None:
    os_release(base, "ubuntu", "20.04")
    program(base / "bin", "add-apt-repository", "exit 1")
    done = run(step(DLC, "toolchain"), base)
    assert done.returncode == 1
    assert "ubuntu 20.04 has an old compiler, and the newer one could not be installed" in done.stderr


def test_compiler_of_the_container_is_used_if_it_is_new_enough(base: Path) -> None:
    compiler(base, "g++", "11")
    assert run(step(DLC, "g++-11"), base).returncode == 0
    assert (base / "cxx").read_text() == f"{base}/bin/g++\n"
    assert installed(base) == ""


def test_compiler_that_is_too_old_is_replaced_for_the_build(base: Path) -> None:
    compiler(base, "g++", "9")
    compiler(base, "g++-11", "11")
    assert run(step(DLC, "g++-11"), base).returncode == 0
    assert (base / "cxx").read_text() == f"{base}/bin/g++-11\n"
    assert "install -y --no-install-recommends g++-11" in installed(base)
    assert "CXX=$(</cxx)" in (ROOT / "containers" / DLC).read_text()


def test_compiler_that_cannot_be_installed_ends_the_build_with_the_reason(base: Path) -> None:
    compiler(base, "g++", "9")
    program(base / "bin", "apt-get", "exit 100")
    done = run(step(DLC, "g++-11"), base)
    assert done.returncode == 1
    assert "the base has GCC 9, the engine needs GCC 11 or later, and g++-11 could not be installed" in done.stderr
