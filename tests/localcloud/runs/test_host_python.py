"""What a job installs is in its host's own environment, and the user's environment stays as it is."""

from __future__ import annotations

import json
import os
import shutil
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
path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
print(json.dumps(create(Path(sys.argv[1])).variables({"PATH": path})))
"""


def wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel of a package with one module, and a console script of the same name."""
    path, facts = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = '{version}'\ndef main():\n    print('script of', VERSION)\n",
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{one},,\n" for one in [*files, f"{facts}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for one, text in {**files, f"{facts}/RECORD": record}.items():
            archive.writestr(one, text)
    return path


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The folder of a user's environment, with the packages of the tests and `wanted` 2.0."""
    folder = tmp_path / "user"
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = next(folder.glob("lib/python*/site-packages"))
    lines = (f"import site; site.addsitedir({one!r})\n" for one in site.getsitepackages())
    (packages / "of_the_tests.pth").write_text("".join(lines))
    with zipfile.ZipFile(wheel(tmp_path, "wanted", "2.0")) as archive:
        archive.extractall(packages)
    program(folder, "wanted", f"#!{python(folder)}\nfrom wanted import main\nmain()\n")
    return folder


def python(user: Path) -> str:
    return str(user / "bin/python")


def program(user: Path, name: str, text: str) -> None:
    path = user / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


def contents(folder: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in folder.rglob("*") if one.is_file() and one.parent.name != "__pycache__"}


def host_of(user: Path, folder: Path) -> dict[str, str]:
    """The variables of a host whose environment is created in `folder`."""
    created = subprocess.run([python(user), "-c", CREATE, str(folder)], stdout=subprocess.PIPE, check=True)
    variables: dict[str, str] = json.loads(created.stdout)
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables


def output(host: dict[str, str], *command: str | Path) -> str:
    return subprocess.check_output(command, env=host, text=True)


def install(host: dict[str, str], *packages: str | Path) -> None:
    subprocess.run(["pip", "install", "-q", "--no-index", *packages], env=host, check=True)


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


def launch(user: Path, folder: Path, script: str, requirements: str, hosts: int) -> subprocess.CompletedProcess[str]:
    """Run a job in `folder` with the user's Python. Its source has wheels of `wanted` 1.0 and `late` 1."""
    folder.mkdir()
    write_job(folder, f"{JOB}environment: {{PYTHON_OF_THE_USER: {python(user)}}}\n", script)
    (folder / "src/requirements.txt").write_text(requirements)
    wheel(folder / "src", "wanted", "1.0")
    wheel(folder / "src", "late", "1")
    command = [python(user), "-c", LAUNCH, "launch", "--local", "--hosts", str(hosts), "--workers-per-host", "1"]
    return subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False)


@pytest.mark.runs
def test_packages_of_a_job_are_installed_in_each_host(user: Path, tmp_path: Path) -> None:
    before = contents(user)
    ran = launch(user, tmp_path / "project", SCRIPT, "./wanted-1.0-py3-none-any.whl\ntorch\n", hosts=2)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    for host in ("algo-1:0", "algo-2:1"):
        assert f"{host} | found 1.0 script of 1.0 2.0\n" in ran.stdout
    assert "Requirement already satisfied: torch" in ran.stdout
    assert contents(user) == before


@pytest.mark.runs
def test_job_runs_in_a_folder_whose_path_has_a_colon(user: Path, tmp_path: Path) -> None:
    before = contents(user)
    script = "import sys, wanted\nprint('found', wanted.VERSION, '/project:1/' in sys.prefix, flush=True)\n"
    ran = launch(user, tmp_path / "project:1", script, "./wanted-1.0-py3-none-any.whl\n", hosts=1)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "found 1.0 True\n" in ran.stdout
    assert contents(user) == before


SHOW = "import sys\nprint(sys.prefix, sys.argv[1:])\n"
SHEBANGS = {
    "path": "#!{python}\n",
    "path and options": "#! {python}3 -Es\n",
    "long path": "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''\n",
    "path with a space": "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
    "name": "#!/usr/bin/env python\n",
}


@pytest.mark.parametrize("shebang", SHEBANGS.values(), ids=SHEBANGS)
def test_script_of_the_user_runs_with_the_python_of_the_host(user: Path, tmp_path: Path, shebang: str) -> None:
    if '"{python}"' in shebang:
        user = user.rename(tmp_path / "the user")
    program(user, "show", shebang.format(python=python(user)) + SHOW)
    host = host_of(user, tmp_path / "a host")
    found = f"{tmp_path / 'a host'} ['a b', '$c']\n"
    assert output(host, "show", "a b", "$c") == found
    path = shutil.which("show", path=host["PATH"])
    assert path is not None
    assert output(host, "python", path, "a b", "$c") == found


def test_other_programs_and_scripts_of_the_job_are_not_replaced(user: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    venv.EnvBuilder(symlinks=True).create(other)
    program(user, "of_another", f"#!{python(other)}\n{SHOW}")
    program(user, "shell", "#!/bin/sh\necho shell\n")
    program(user, "empty", "#!\n")
    (user / "bin/loop").symlink_to("loop")
    host = host_of(user, tmp_path / "host")
    programs = {one.name for one in (tmp_path / "host/bin").iterdir()}
    assert "wanted" in programs
    assert programs.isdisjoint({"of_another", "shell", "empty", "loop"})
    install(host, wheel(tmp_path, "wanted", "1.0"))
    assert host_of(user, tmp_path / "host")["PATH"] == host["PATH"]
    assert output(host, "wanted") == "script of 1.0\n"


def test_standard_library_and_pythonpath_are_found_before_packages_of_the_job(user: Path, tmp_path: Path) -> None:
    host = host_of(user, tmp_path / "host")
    install(host, *(wheel(tmp_path, name, "1.0") for name in ("dataclasses", "late", "wanted")))
    assert output(host, "python", "-c", "import late, dataclasses; print(dataclasses.field.__name__)") == "field\n"
    own = tmp_path / "own"
    own.mkdir()
    (own / "wanted.py").write_text("VERSION = 'own'\n")
    assert output({**host, "PYTHONPATH": str(own)}, "python", "-c", "import wanted; print(wanted.VERSION)") == "own\n"
    is_found = "from importlib.util import find_spec; print(find_spec('late') is not None)"
    assert output(host, "python", "-c", is_found) == "True\n"
    assert output(host, python(user), "-c", is_found) == "False\n"


#: A build backend without requirements: the wheel records whether the build sees the user's packages.
BACKEND = """\
import importlib.util, os, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "built-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        archive.writestr("built.py", f"saw = {importlib.util.find_spec('wanted') is not None}")
        archive.writestr("built-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1\\n")
        archive.writestr("built-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr("built-1.dist-info/RECORD", "")
    return name

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = build_wheel(folder)
    with zipfile.ZipFile(f"{folder}/{name}", "a") as archive:
        archive.writestr("wanted.pth", os.path.join(os.getcwd(), "src"))
    return name
"""


def write_package(folder: Path) -> Path:
    """The source of the package `built`. An editable installation finds `wanted` in its folder src."""
    (folder / "src").mkdir(parents=True)
    (folder / "src/wanted.py").write_text("VERSION = 'edited'\n")
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    return folder


def test_package_is_built_in_isolation_and_packages_of_the_user_are_found(user: Path, tmp_path: Path) -> None:
    packages = next(user.glob("lib/python*/site-packages"))
    elsewhere = tmp_path / "editable"
    elsewhere.mkdir()
    (elsewhere / "edited.py").write_text("")
    (packages / "editable.pth").write_text(f"import sys; sys.path.append({str(elsewhere)!r})\n")
    source = write_package(tmp_path / "package")
    before = contents(user)
    host = host_of(user, tmp_path / "host")
    install(host, source)
    code = "import built, edited, sys, wanted; print(built.saw, wanted.VERSION, sys.prefix)"
    assert output(host, "python3", "-c", code) == f"False 2.0 {tmp_path / 'host'}\n"
    assert contents(user) == before


WORKER = """\
import subprocess, sys, wanted
subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", sys.argv[1]], check=True)
import late
print(wanted.VERSION, late.VERSION)
"""


@pytest.mark.torch
def test_workers_of_torchrun_find_an_editable_package_and_install_into_the_host(user: Path, tmp_path: Path) -> None:
    program(user, "torchrun", f"#!{python(user)}\nfrom torch.distributed.run import main\nmain()\n")
    script = tmp_path / "train.py"
    script.write_text(WORKER)
    before = contents(user)
    host = host_of(user, tmp_path / "host")
    install(host, "-e", write_package(tmp_path / "package"))
    ran = output(host, "torchrun", "--nproc-per-node", "1", script, wheel(tmp_path, "late", "1.0"))
    assert ran == "edited 1.0\n"
    assert contents(user) == before
