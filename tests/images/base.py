"""A base image with the distribution of the local machine, from the mirror in its package sources."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

BASE = "localhost/smdp-test-base"


@dataclass(frozen=True)
class Mirror:
    uri: str
    suite: str


def own_mirror(folder: Path = Path("/etc/apt")) -> Mirror:
    """The first package source of the distribution, in either format of apt."""
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        for stanza in path.read_text().split("\n\n"):
            fields = dict(re.findall(r"^(URIs|Suites): *(\S+)", stanza, re.MULTILINE))
            if fields.keys() == {"URIs", "Suites"} and "-" not in fields["Suites"]:
                return Mirror(fields["URIs"], fields["Suites"])
    for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))):
        text = path.read_text() if path.exists() else ""
        found = re.search(r"^deb +(?:\[[^]]*\] +)?(\S+) +([a-z]+) +main", text, re.MULTILINE)
        if found is not None:
            return Mirror(found[1], found[2])
    pytest.fail(f"no source of the distribution itself in {folder}")


def buildah(*arguments: str | Path) -> str:
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"buildah {arguments}: {done.stderr}"
    return done.stdout.strip()


def run_in(image: str, *command: str) -> str:
    """The standard output of a command in a container of the image."""
    container = buildah("from", "--pull-never", image)
    try:
        return buildah("run", "--isolation", "chroot", container, "--", *command)
    finally:
        buildah("rm", container)


def commit(image: str, command: str, name: str) -> str:
    """Run a shell command in the image and save the result under another name."""
    container = buildah("from", "--pull-never", image)
    try:
        buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", command)
        buildah("commit", "--quiet", "--format", "docker", container, name)
    finally:
        buildah("rm", container)
    return name


def _is_here(image: str) -> bool:
    command = ["buildah", "inspect", "--type", "image", image]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def base_image(python: str | None = None) -> str:
    """The base image, built once per machine.

    Args:
        python: the version of `python3`, such as "3.10", instead of the distribution's. Skips the test if the machine
            does not have it.
    """
    name = _own_base()
    if python is None:
        return name
    other = f"{name}-py{python}"
    if not _is_here(other):
        container = buildah("from", "--pull-never", name)
        buildah("add", "--quiet", container, folder_of(python), "/usr/local")
        # It may need its own shared library. Its tests contain keys and a wheel, which are not copied.
        tidy = f"ldconfig && rm -r /usr/local/lib/python{python}/test"
        buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", tidy)
        buildah("commit", "--quiet", "--format", "docker", container, other)
        buildah("rm", container)
    return other


def folder_of(python: str) -> Path:
    """The folder of a Python that is installed in its own folder, as pyenv does."""
    versions = sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python{python}"))
    for candidate in [shutil.which(f"python{python}"), *map(str, versions)]:
        command = [candidate or "", "-c", "import sys; print(sys.base_prefix)"]
        found = subprocess.run(command, capture_output=True, text=True, check=False) if candidate else None
        if found is not None and found.returncode == 0 and found.stdout.strip() not in ("/usr", "/usr/local"):
            return Path(found.stdout.strip())
    pytest.skip(f"no python{python} in a folder of its own is here, such as pyenv's")


def _own_base() -> str:
    mirror = own_mirror()
    name = f"{BASE}:{mirror.suite}"
    if _is_here(name):
        return name
    with tempfile.TemporaryDirectory(prefix="smdp-base-") as folder:
        command = ["debootstrap", "--variant=minbase", "--include=python3,ca-certificates"]
        made = subprocess.run([*command, mirror.suite, folder, mirror.uri], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-2000:] + made.stderr
        for leftover in [
            *Path(folder).glob("var/cache/apt/archives/*.deb"),
            *Path(folder).glob("var/lib/apt/lists/*_*"),
        ]:
            leftover.unlink()
        # debootstrap copies the local machine's name servers and host name, which are private.
        for own in ("etc/resolv.conf", "etc/hostname"):
            Path(folder, own).write_text("")
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, folder, "/")
        buildah("commit", "--quiet", "--format", "docker", container, name)
        buildah("rm", container)
    return name
