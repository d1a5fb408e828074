"""How `make test-clients` comes by version 2 of the AWS command line: from the system's packages, or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment

PROGRAMS = ("apt-get", "apt-cache", "dpkg-deb", "dpkg", "make")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason=f"needs {', '.join(PROGRAMS)}, a Debian or Ubuntu"
)
CONTROL = """\
Package: awscli
Version: {version}
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: prints its version
"""


class System:
    """A system of its own, as far as apt is concerned, with one place for packages: a folder."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "packages"
        self.checkout = folder / "checkout"
        self._folder = folder
        for name in ("etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"):
            (folder / "apt" / name).mkdir(parents=True)
        self.packages.mkdir()
        (self.checkout / "tools").mkdir(parents=True)
        shutil.copy(ROOT / "tools/aws_cli_v2.sh", self.checkout / "tools")
        (folder / "apt/status").touch()
        (folder / "apt/sources.list").write_text(f"deb [trusted=yes] file:{self.packages} ./\n")
        (folder / "apt.conf").write_text(
            f'Dir "{folder}/apt";\nDir::State "state";\nDir::State::status "{folder}/apt/status";\n'
            f'Dir::Cache "cache";\nDir::Etc "etc";\nDir::Etc::sourcelist "{folder}/apt/sources.list";\n'
            'APT::Sandbox::User "root";\n'
        )
        self.environment = clean_environment(APT_CONFIG=str(folder / "apt.conf"), PATH=os.environ["PATH"])

    def offer(self, version: str) -> Path:
        """Put the package in its place, and have apt know of it."""
        tree = self._folder / "tree"
        (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
        (tree / "usr/bin").mkdir(parents=True, exist_ok=True)
        (tree / "DEBIAN/control").write_text(CONTROL.format(version=version))
        (tree / "usr/bin/aws").write_text(f"print('aws-cli/{version}')\n")
        package = self.packages / f"awscli_{version}_all.deb"
        self._run("dpkg-deb", "--build", "--root-owner-group", str(tree), str(package))
        content = package.read_bytes()
        described = f"{CONTROL.format(version=version)}Filename: ./{package.name}\nSize: {len(content)}\n"
        (self.packages / "Packages").write_text(f"{described}SHA256: {hashlib.sha256(content).hexdigest()}\n")
        self._run("apt-get", "-qq", "update")
        return package

    def make(self) -> str:
        """What `make` says of it, which does not fail."""
        return self._run("make", "-C", str(self.checkout), "-f", str(ROOT / "Makefile"), ".venv-clients/aws2/aws")

    def version(self) -> str:
        return self._run(str(self.checkout / ".venv-clients/aws2/aws"), "--version").strip()

    @property
    def has_aws(self) -> bool:
        return (self.checkout / ".venv-clients/aws2/aws").exists()

    def _run(self, *command: str) -> str:
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr if command[0] == "make" else ran.stdout


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_the_package_is_unpacked_once(system: System) -> None:
    system.offer("2.9.19")
    assert "aws-cli/2.9.19" in system.make()
    assert system.version() == "aws-cli/2.9.19"
    assert "up to date" in system.make()


@pytest.mark.parametrize("version", [None, "1.22.34"])
def test_a_system_without_the_package_is_queried_each_time(system: System, version: str | None) -> None:
    if version is not None:
        system.offer(version)
    assert f"awscli of this system is {version or 'not known'}" in system.make()
    assert not system.has_aws
    system.offer("2.9.19")
    system.make()
    assert system.version() == "aws-cli/2.9.19"


def test_packages_that_cannot_be_downloaded_leave_their_tests_out(system: System) -> None:
    package = system.offer("2.9.19")
    package.rename(f"{package}.away")
    assert "cannot be downloaded" in system.make()
    assert not system.has_aws
    Path(f"{package}.away").rename(package)
    system.make()
    assert system.version() == "aws-cli/2.9.19"


def test_a_failed_download_leaves_what_is_there(system: System) -> None:
    system.offer("2.9.19")
    system.make()
    system.offer("2.15.0").unlink()
    (system.checkout / "tools/aws_cli_v2.sh").touch()
    assert "cannot be downloaded" in system.make()
    assert system.version() == "aws-cli/2.9.19"
