"""In each kind of environment, the command that `launch --local` prints installs what is missing; the job trains."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import JOB, write_job

pytestmark = [pytest.mark.release, pytest.mark.timeout(3600)]

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
#: Not that of the tests' own environment, in which nothing is missing.
EXECUTABLE = str(Path(sys.base_prefix, "bin", f"python{PYTHON}"))
#: How this machine reaches the package index.
_KEPT = re.compile(r"_CERT$|^SSL_CERT_|_INDEX_URL$")
ARGUMENTS = ("launch", "--local", "--hosts", "2", "--workers-per-host", "1")


class Place(NamedTuple):
    """An empty home folder.

    Args:
        tools: the folder with uv and pipx.
        wheels: the folder of wheels.
    """

    home: Path
    tools: Path
    wheels: Path

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if _KEPT.search(name)}
        path = f"{self.home / '.local' / 'bin'}:{self.home / 'venv' / 'bin'}:{self.tools}:/usr/sbin:/usr/bin:/sbin:/bin"
        return {**kept, "HOME": str(self.home), "PATH": path, "UV_PYTHON_DOWNLOADS": "never", "LC_ALL": "C.UTF-8"}

    def run(self, *command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)),
            cwd=cwd or self.home,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )

    def succeed(self, *command: str | Path) -> None:
        ran = self.run(*command)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    @property
    def links(self) -> tuple[str, str]:
        return ("--find-links", str(self.wheels))


def in_venv(place: Place, **options: bool) -> list[str]:
    venv.EnvBuilder(with_pip=True, symlinks=True, **options).create(place.home / "venv")
    place.succeed("pip", "install", "--quiet", *place.links, "smdp-launch")
    return ["smdp-launch"]


def in_venv_above_the_system(place: Place) -> list[str]:
    return in_venv(place, system_site_packages=True)


def in_uv_venv(place: Place) -> list[str]:
    place.succeed("uv", "venv", "--quiet", "--python", EXECUTABLE, place.home / "venv")
    place.succeed("uv", "pip", "install", "--quiet", "--python", place.home / "venv", *place.links, "smdp-launch")
    return [str(place.home / "venv" / "bin" / "smdp-launch")]


def in_uv_project(place: Place) -> list[str]:
    project = place.home / "job"
    place.succeed("uv", "init", "--quiet", "--bare", "--name", "job", "--python", EXECUTABLE, project)
    place.succeed("uv", "add", "--quiet", "--project", project, *place.links, "smdp-launch")
    return ["uv", "run", "--quiet", "smdp-launch"]


def in_uv_tool(place: Place) -> list[str]:
    place.succeed("uv", "tool", "install", "--quiet", "--python", EXECUTABLE, *place.links, "smdp-launch")
    return ["smdp-launch"]


def in_uvx(place: Place) -> list[str]:
    return ["uv", "tool", "run", "--quiet", "--python", EXECUTABLE, *place.links, "smdp-launch"]


def in_uv_run(place: Place) -> list[str]:
    return [
        "uv",
        "run",
        "--quiet",
        "--no-project",
        "--python",
        EXECUTABLE,
        *place.links,
        "--with",
        "smdp-launch",
        "smdp-launch",
    ]


def in_pipx(place: Place) -> list[str]:
    place.succeed("pipx", "install", "--quiet", f"--pip-args={shlex.join(place.links)}", "smdp-launch")
    return ["smdp-launch"]


def in_pipx_run(place: Place) -> list[str]:
    return ["pipx", "run", "--backend", "pip", f"--pip-args={shlex.join(place.links)}", "smdp-launch"]


def in_user_folder(place: Place) -> list[str]:
    """Debian's Python: pip refuses to change it without its option."""
    python = "/usr/bin/python3"
    if place.run(python, "-m", "pip", "--version").returncode != 0:
        pytest.skip("the system's Python has no pip")
    options = ("--user", "--break-system-packages")
    place.succeed(python, "-m", "pip", "install", "--quiet", *options, *place.links, "smdp-launch")
    return ["smdp-launch"]


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=True, symlinks=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv>=0.8,<1", "pipx>=1.8,<2"]
    subprocess.run(install, check=True, timeout=600)
    (folder / "only").mkdir()
    for name in ("uv", "pipx"):
        (folder / "only" / name).symlink_to(folder / "bin" / name)
    return folder / "only"


@pytest.mark.parametrize(
    ("install", "beginning"),
    [
        (in_venv, "pip install --find-links WHEELS"),
        (in_venv_above_the_system, "pip install --find-links WHEELS"),
        (in_uv_venv, "uv pip install --python HOME/venv/bin/python --find-links WHEELS"),
        (in_uv_project, "uv add --find-links WHEELS"),
        (in_uv_tool, f"uv tool install --python {PYTHON} --find-links WHEELS"),
        (in_uvx, f"uv tool run --python {PYTHON} --find-links WHEELS --from"),
        (in_uv_run, f"uv run --python {PYTHON} --find-links WHEELS --with"),
        (in_pipx, "pipx runpip smdp-launch install --find-links WHEELS"),
        (in_pipx_run, "pipx run '--pip-args=--find-links WHEELS' --spec"),
        (in_user_folder, "pip install --user --break-system-packages --find-links WHEELS"),
    ],
    ids=["venv", "site", "uv venv", "uv project", "uv tool", "uvx", "uv run", "pipx", "pipx run", "user"],
)
def test_printed_command_installs_what_is_missing(
    tmp_path: Path, tools: Path, wheels: Path, install: Callable[[Place], list[str]], beginning: str
) -> None:
    place = Place(tmp_path / "home", tools, tmp_path / "home" / "wheels")
    job = place.home / "job"
    job.mkdir(parents=True)
    shutil.copytree(wheels, place.wheels)
    write_job(job, JOB.replace("{epochs: 2}", "{}"), "print('trained')\n")
    command = install(place)
    refused = place.run(*command, *ARGUMENTS, cwd=job)
    assert refused.returncode == ExitCode.ENVIRONMENT, refused.stdout + refused.stderr
    (line,) = [one for one in refused.stderr.splitlines() if one.startswith("smdp-launch: ")]
    printed = line.partition(" run: ")[2]
    assert printed.startswith(beginning.replace("HOME", str(place.home)).replace("WHEELS", str(place.wheels))), line
    fixed = place.run("bash", "-c", printed, cwd=job)
    if beginning.startswith(("uv tool run", "uv run", "pipx run ")):
        assert fixed.returncode == ExitCode.OK, fixed.stdout + fixed.stderr
        assert "trained" in fixed.stdout
        return
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    again = place.run(*command, *ARGUMENTS, cwd=job)
    assert again.returncode == ExitCode.OK, again.stdout + again.stderr
    assert "trained" in again.stdout
