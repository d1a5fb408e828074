"""Images as roots of simulated hosts. buildah finds and mounts them; it needs no daemon."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.isolation import network

PROGRAM = "buildah"
#: In a request's Environment: "containers" runs its hosts from the image that the request names.
VARIABLE = "SMDP_LOCAL_HOSTS"
_TIMEOUT = 120.0  # seconds for buildah; without overlays it copies the image


class ContainerError(Exception):
    """Containers cannot run on this machine; the message says why and what to do."""


@dataclass(frozen=True)
class Image:
    """A mounted image, and its settings for running it."""

    root: Path
    environment: dict[str, str]
    entrypoint: list[str]
    folder: str


def requested(request: Mapping[str, Any]) -> bool:
    """Whether the request's hosts run from an image."""
    environment: Mapping[str, str] = request.get("Environment", {})
    return environment.get(VARIABLE) == "containers"


def refusal() -> str | None:
    """Why containers cannot run on this machine; None where they can."""
    if os.geteuid() != 0:
        return "containers need root"
    if shutil.which(PROGRAM) is None:
        return f"containers need {PROGRAM} (apt-get install {PROGRAM})"
    return network.refusal()


def check(image: str) -> None:
    """Raises ContainerError unless hosts can run from `image` on this machine."""
    reason = refusal()
    if reason is not None:
        raise ContainerError(reason)
    _settings(image)


def open_image(image: str, job: str) -> Image:
    """Mount the image for a job; `close` unmounts it. Raises ContainerError."""
    check(image)
    settings = _settings(image)
    close(job)
    _buildah("from", "--pull-never", "--name", _name(job), image)
    root = Path(_buildah("mount", _name(job)).strip())
    variables = [one.partition("=") for one in settings.get("Env") or []]
    return Image(
        root,
        {name: value for name, _, value in variables},
        list(settings.get("Entrypoint") or []),
        settings.get("WorkingDir") or "/",
    )


def close(job: str) -> None:
    """Unmount the job's image, if it is mounted."""
    if shutil.which(PROGRAM) is not None:
        for verb in ("umount", "rm"):
            _run([verb, _name(job)])


def _name(job: str) -> str:
    return f"smdp-{job}"


def _settings(image: str) -> Mapping[str, Any]:
    found = _run(["inspect", "--type", "image", image])
    if found.returncode != 0:
        raise ContainerError(
            f"{PROGRAM} has no image {image}: build it with `smdp-launch image build`, or `{PROGRAM} pull` it"
        )
    settings: Mapping[str, Any] = json.loads(found.stdout)["Docker"]["config"]
    return settings


def _buildah(*arguments: str) -> str:
    done = _run(arguments)
    if done.returncode != 0:
        raise ContainerError(f"{PROGRAM} {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT, check=False
    )
