"""The programs that build and push images: docker, podman and buildah."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem

NAMES = ("docker", "podman", "buildah")
#: The processor of SageMaker's hosts for which these images are.
ARCHITECTURE = "amd64"
_TIMEOUT = 20.0  # seconds for a command that checks a tool and its daemon
_CHECKS = {
    "docker": ["version", "--format", "{{.Server.Version}}"],
    "podman": ["info", "--format", "{{.Version.Version}}"],
    "buildah": ["info"],
}
_INSTALL = (
    "install one: on Debian and Ubuntu `apt-get install buildah` (or podman), on macOS and Windows Docker Desktop; "
    "if docker is installed, start its daemon"
)


@dataclass(frozen=True)
class Login:
    """A registry's user and temporary password. It is written only to a temporary folder of this run."""

    registry: str
    user: str
    password: str


@dataclass(frozen=True)
class Tool:
    """A program that builds images, and its command lines."""

    name: str
    path: str

    def build(self, folder: Path, reference: str, args: Mapping[str, str]) -> list[str]:
        command = [self.path, "build", "--file", str(folder / "Dockerfile"), "--tag", reference]
        # Without it, the tools build for the processor of this machine.
        command += ["--platform", f"linux/{ARCHITECTURE}"]
        if self.name == "docker":
            command += ["--progress", "plain"]
        else:
            # The OCI format does not support SHELL, which the Dockerfiles use. With layers, a change of the engine's
            # sources does not install torch again.
            command += ["--format", "docker", "--layers", "--force-rm", *self._isolation()]
        for name, value in sorted(args.items()):
            command += ["--build-arg", f"{name}={value}"]
        return [*command, str(folder)]

    def has(self, reference: str) -> bool:
        kind = ["--type", "image"]
        return _quiet([self.path, "inspect", *kind, reference]).returncode == 0

    def architecture(self, reference: str) -> str:
        """The processor of a local image, such as ``amd64``."""
        return self._ask(reference, "{{.OCIv1.Architecture}}" if self.name == "buildah" else "{{.Architecture}}")

    def digest(self, reference: str) -> str:
        """The digest by which the tool identifies a local image: of its config or, in some versions of docker, of its
        manifest or index."""
        found = self._ask(reference, "{{.FromImageID}}" if self.name == "buildah" else "{{.Id}}")
        return f"sha256:{found.removeprefix('sha256:')}"

    def _ask(self, reference: str, template: str) -> str:
        done = _quiet([self.path, "inspect", "--type", "image", "--format", template, reference])
        if done.returncode != 0:
            raise EnvironmentProblem(f"{self.name} could not inspect {reference}: {_last_line(done)}")
        return done.stdout.strip()

    def add_tag(self, reference: str, other: str) -> None:
        done = _quiet([self.path, "tag", reference, other])
        if done.returncode != 0:
            raise EnvironmentProblem(f"{self.name} could not tag {reference} as {other}: {_last_line(done)}")

    def push(self, reference: str, *, plain_http: bool, logins: Path) -> list[str]:
        """The command that pushes an image.

        Args:
            plain_http: no TLS; only for local registries.
            logins: the folder from ``logged_in``.
        """
        if self.name == "docker":
            return [self.path, "--config", str(logins), "push", reference]
        command = [self.path, "push", "--authfile", str(logins / "config.json")]
        if plain_http:
            command.append("--tls-verify=false")
        return [*command, reference, f"docker://{reference}"]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_BUILDKIT": "1"}

    def _isolation(self) -> list[str]:
        """Without a container runtime, buildah runs the steps in a chroot, which needs root."""
        runs = any(shutil.which(one) for one in ("crun", "runc"))
        return ["--isolation", "chroot"] if self.name == "buildah" and not runs else []


def find_tool(wanted: str | None = None) -> Tool:
    """The first tool that works, or ``wanted``.

    Raises:
        EnvironmentProblem: no tool works; the message has the answer of each tool, and what to install.
    """
    refusals = []
    for name in NAMES if wanted is None else (wanted,):
        path = shutil.which(name)
        refusal = "not installed" if path is None else _refusal(path, _CHECKS[name])
        if path is not None and refusal is None:
            return Tool(name, path)
        refusals.append(f"{name}: {refusal}")
    raise EnvironmentProblem(f"no tool that builds images works ({'; '.join(refusals)}): {_INSTALL}")


@contextmanager
def logged_in(login: Login) -> Iterator[Path]:
    """A temporary folder with the login for one command, in a form that all three tools read."""
    with tempfile.TemporaryDirectory(prefix="smdp-login-") as folder:
        file = Path(folder, "config.json")
        file.touch(mode=0o600)
        auth = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
        document = {"auths": {login.registry: {"auth": auth}}, **_docker_context(file.parent)}
        file.write_text(json.dumps(document), encoding="utf-8")
        yield file.parent


def _docker_context(folder: Path) -> dict[str, str]:
    """The user's setting for docker's daemon (Docker Desktop, rootless docker), which is in the same file as the
    logins."""
    own = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    if (own / "contexts").is_dir():
        try:
            (folder / "contexts").symlink_to(own.resolve() / "contexts")
        except OSError:  # Windows may permit it to administrators only
            shutil.copytree(own / "contexts", folder / "contexts")
    try:
        settings = json.loads((own / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    context = settings.get("currentContext") if isinstance(settings, dict) else None
    return {"currentContext": context} if isinstance(context, str) else {}


def _refusal(path: str, check: list[str]) -> str | None:
    try:
        done = _quiet([path, *check])
    except EnvironmentProblem as problem:
        return str(problem)
    return None if done.returncode == 0 else _last_line(done)


def _quiet(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        name = Path(command[0]).name
        raise EnvironmentProblem(f"`{name} {command[1]}` did not answer within {_TIMEOUT:.0f} s") from None


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
