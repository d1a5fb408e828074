"""What a job installs is in its host's own environment, and the user's environment stays as it is."""

from __future__ import annotations

import json
import os
import site
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import JOB, clean_environment, write_job

LAUNCH = "import sys; from smdp_launch.console import main; sys.exit(main())"
CREATE = """\
import json, sys
from pathlib import Path
from smdp_launch.localcloud.isolation.host_python import create
print(json.dumps(create(Path(sys.argv[1])).variables({"PATH": "/usr/bin:/bin"})))
"""


def wheel(folder: Path, version: str) -> Path:
    """A wheel of the package `wanted`, with a console script of that name."""
    path, facts = folder / f"wanted-{version}-py3-none-any.whl", f"wanted-{version}.dist-info"
    files = {
        "wanted.py": f"VERSION = '{version}'\ndef main():\n    print('script of', VERSION)\n",
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: wanted\nVersion: {version}\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/entry_points.txt": "[console_scripts]\nwanted = wanted:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{facts}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{facts}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The folder of a user's environment, with the packages of the tests and `wanted` 2.0."""
    folder = tmp_path / "user"
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    lines = (f"import site; site.addsitedir({one!r})\n" for one in site.getsitepackages())
    (packages / "of_the_tests.pth").write_text("".join(lines))
    with zipfile.ZipFile(wheel(tmp_path, "2.0")) as archive:
        archive.extractall(packages)
    return folder


def python(user: Path) -> str:
    return str(user / "bin/python")


def contents(folder: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in folder.rglob("*") if one.is_file() and one.parent.name != "__pycache__"}


SCRIPT = """\
import os, shutil, subprocess, sys
import torch, wanted
assert os.path.dirname(shutil.which("pip")) == os.path.dirname(sys.executable)
subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "./late-1-py3-none-any.whl"], check=True)
import late
said = [subprocess.check_output(command, text=True).strip() for command in (
    ["wanted"],
    [os.environ["PYTHON_OF_THE_USER"], "-c", "import wanted; print(wanted.VERSION)"],
)]
print("found", wanted.VERSION, *said, flush=True)
"""


@pytest.mark.runs
def test_packages_of_a_job_are_installed_in_each_host(user: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    write_job(folder, f"{JOB}environment: {{PYTHON_OF_THE_USER: {python(user)}}}\n", SCRIPT)
    wheel(folder / "src", "1.0")
    (folder / "src/requirements.txt").write_text("./wanted-1.0-py3-none-any.whl\ntorch\n")
    with zipfile.ZipFile(folder / "src/late-1-py3-none-any.whl", "w") as archive:
        archive.writestr("late.py", "")
        archive.writestr("late-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: late\nVersion: 1\n")
        archive.writestr("late-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("late-1.dist-info/RECORD", "")
    before = contents(user)
    command = [python(user), "-c", LAUNCH, "launch", "--local", "--hosts", "2", "--workers-per-host", "1"]
    ran = subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    for host in ("algo-1:0", "algo-2:1"):
        assert f"{host} | found 1.0 script of 1.0 1.0\n" in ran.stdout
    assert "Requirement already satisfied: torch" in ran.stdout
    assert contents(user) == before


#: A build backend without requirements: the wheel records whether the build sees the user's packages.
BACKEND = """\
import importlib.util, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "built-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        archive.writestr("built.py", f"saw = {importlib.util.find_spec('wanted') is not None}")
        archive.writestr("built-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1\\n")
        archive.writestr("built-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("built-1.dist-info/RECORD", "")
    return name
"""


def test_package_is_built_in_isolation_and_packages_of_the_user_are_found(user: Path, tmp_path: Path) -> None:
    packages = next(user.glob("lib/python*/site-packages"))
    elsewhere = tmp_path / "editable"
    elsewhere.mkdir()
    (elsewhere / "edited.py").write_text("")
    (packages / "editable.pth").write_text(f"import sys; sys.path.append({str(elsewhere)!r})\n")
    source = tmp_path / "package"
    source.mkdir()
    (source / "backend.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    before = contents(user)
    host = str(tmp_path / "host")
    ran = [subprocess.run([python(user), "-c", CREATE, host], capture_output=True, check=True) for _ in range(2)]
    environment = {**os.environ, **json.loads(ran[-1].stdout)}
    subprocess.run(["pip", "install", "--no-index", str(source)], env=environment, check=True)
    program = "import built, edited, sys, wanted; print(built.saw, wanted.VERSION, sys.prefix)"
    found = subprocess.check_output(["python3", "-c", program], env=environment, text=True)
    assert found == f"False 2.0 {host}\n"
    assert contents(user) == before
