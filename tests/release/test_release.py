"""Two releases of one commit, built in two folders, and installed where no compiler is."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.release.conftest import build

pytestmark = [pytest.mark.release, pytest.mark.timeout(3600)]

# The newest symbols of Debian 11.
NEWEST = {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12)}
RANK = """
import os, torch, torch.distributed as dist
from smdp_engine import adapters, torch_backend
torch_backend.register()
dist.init_process_group("smddp")
total = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(total)
print("sum", total.unique().tolist(), adapters.check("torch").state)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, commit: str) -> Path:
    return build(tmp_path_factory.mktemp("another") / "a-folder-with-a-longer-name" / "second", commit)


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_two_releases_of_a_commit_have_the_same_bytes(first: Path, second: Path) -> None:
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    assert len([name for name in names if name.endswith((".whl", ".tar.gz"))]) == 6
    assert [name for name in names if (first / name).read_bytes() != (second / name).read_bytes()] == []


def test_every_wheel_has_the_licence(first: Path) -> None:
    wheels = sorted(first.glob("*.whl"))
    assert len(wheels) == 3
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            (licence,) = [one for one in archive.namelist() if one.endswith(".dist-info/licenses/LICENSE")]
            assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_libraries_need_no_newer_symbols_than_debian_11_and_name_no_folder_of_the_build(
    first: Path, tmp_path: Path
) -> None:
    wheel = only(first, "smdp_engine-*.whl")
    assert wheel.name.endswith("-py3-none-manylinux_2_31_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        times = {info.date_time for info in archive.infolist()}
    assert len(times) == 1
    built = [path for path in tmp_path.rglob("*") if path.suffix == ".so" or path.name == "smdp_model"]
    assert {path.name for path in built} == {"libsmdp_engine.so", "smdp_model", "torch-2.13-cxx11abi1.so"}
    for path in built:
        listed = subprocess.run(["readelf", "-VdW", str(path)], capture_output=True, text=True, check=True).stdout
        for library, number in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_([\d.]+)", listed):
            assert tuple(map(int, number.split("."))) <= NEWEST[library], (path.name, library, number)
        assert set(re.findall(r"R(?:UN)?PATH.*\[(.*)\]", listed)) <= {"$ORIGIN/.."}, path.name
    root = str(first.parents[1]).encode()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and root in path.read_bytes()] == []


def fresh(folder: Path) -> tuple[Path, dict[str, str]]:
    """A new environment that sees the torch of these tests, and variables with nothing but it on PATH."""
    venv.create(folder, with_pip=True, symlinks=True)
    import torch

    beneath = Path(torch.__file__).parents[1]
    site = only(folder, "lib/python*/site-packages")
    for name in ("torch", "torchgen", "functorch", "numpy", "numpy.libs", "sympy", "mpmath", "networkx", "jinja2"):
        if (beneath / name).exists():
            (site / name).symlink_to(beneath / name)
    for name in ("typing_extensions.py", "filelock", "fsspec", "markupsafe", "nvidia"):
        if (beneath / name).exists():
            (site / name).symlink_to(beneath / name)
    kept = {"PATH": str(folder / "bin"), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    return folder / "bin" / "python", kept


def test_wheel_installed_without_a_compiler_sums_over_two_ranks(first: Path, tmp_path: Path) -> None:
    python, environment = fresh(tmp_path / "venv")
    assert shutil.which("g++", path=environment["PATH"]) is None
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(first), "smdp-engine"]
    subprocess.run(install, env=environment, check=True, timeout=300)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [str(python), "-c", RANK],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for rank in range(2)
    ]
    outcomes = [process.communicate(timeout=300) for process in processes]
    assert [output.strip() for output, _ in outcomes] == ["sum [3.0] shipped"] * 2, outcomes


def test_source_distributions_install(first: Path, tmp_path: Path) -> None:
    tools = first.parents[1] / "build" / "release" / "tools" / "bin"
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    for pattern in ("smdp_launch", "smdp_entrypoint", "smdp_engine"):
        sdist = only(first, f"{pattern}-*.tar.gz")
        command = [str(tools / "python"), "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
        command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(sdist)]
        subprocess.run(command, env=environment, check=True, timeout=1800)
        wheel = only(tmp_path, f"{pattern}-*.whl")
        released = zipfile.ZipFile(only(first, f"{pattern}-*.whl")).namelist()
        # The tool that makes a wheel manylinux adds an entry for each folder.
        expected = {name for name in released if not name.endswith(("/RECORD", ".so", "/"))}
        assert expected - set(zipfile.ZipFile(wheel).namelist()) == set()
