"""Builds an image, unless the same image already exists locally."""

from __future__ import annotations

import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.catalog.images import parse_image
from smdp_launch.errors import EnvironmentProblem, Refused
from smdp_launch.image.context import stage
from smdp_launch.image.recipe import Recipe
from smdp_launch.image.tools import Tool

#: Receives each line that the tool prints.
Progress = Callable[[str], None]
_TAIL = 25  # lines of the tool's output in an error


@dataclass(frozen=True)
class Built:
    """A local image. ``fresh``: whether this run built it."""

    reference: str
    fresh: bool


def build(
    recipe: Recipe, tool: Tool, progress: Progress, *, tag: str | None, wheels: Path | None, rebuild: bool
) -> Built:
    """Build the image. Its tag contains the hash of its inputs.

    Args:
        tag: an additional name for the image.
        rebuild: build the image even if one with that hash exists.

    Raises:
        EnvironmentProblem: the tool failed; the end of its output is in the message.
        Refused: ``tag`` is not a valid name of an image.
    """
    other = None if tag is None else _full_name(recipe.repository, tag)
    with tempfile.TemporaryDirectory(prefix="smdp-image-") as folder:
        context = stage(recipe, Path(folder), wheels)
        reference = f"{recipe.repository}:{recipe.tag(context.content_hash)}"
        fresh = rebuild or not tool.has(reference)
        if fresh:
            run(tool.build(context.folder, reference, recipe.args), tool.environment(), progress)
    if other is not None:
        tool.add_tag(reference, other)
    return Built(reference, fresh)


def _full_name(repository: str, tag: str) -> str:
    name = tag if ":" in tag.rpartition("/")[2] else f"{repository}:{tag}"
    if parse_image(name) is None:
        raise Refused(f"{tag!r} is not a name for an image: use a tag such as latest, or NAME:TAG in lower case")
    return name


def run(command: Sequence[str], environment: Mapping[str, str], progress: Progress) -> None:
    """Run a tool, and pass each line of its output to ``progress``.

    Raises:
        EnvironmentProblem: it failed.
    """
    last: deque[str] = deque(maxlen=_TAIL)
    with subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                last.append(line.rstrip())
                progress(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        shown = "\n".join(last)
        name = Path(command[0]).name
        raise EnvironmentProblem(f"{name} {command[1]} failed with exit code {process.returncode}:\n{shown}")
