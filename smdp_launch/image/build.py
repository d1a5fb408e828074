"""Builds an image, or finds that the very same one is here already."""

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

#: Gets each line that the tool prints.
Progress = Callable[[str], None]
_TAIL = 25  # lines of the tool's output in an error


@dataclass(frozen=True)
class Built:
    """An image that is on this machine. ``fresh``: whether it was built just now."""

    reference: str
    fresh: bool


def build(
    recipe: Recipe, tool: Tool, progress: Progress, *, tag: str | None, wheels: Path | None, rebuild: bool
) -> Built:
    """Build the image and name it by the hash of what it is made from.

    Args:
        tag: a further name of the person's own for it.
        rebuild: build even where an image of that hash is here.

    Raises:
        EnvironmentProblem: the tool failed; the end of its output is in the message.
        Refused: ``tag`` cannot be the name of an image.
    """
    other = None if tag is None else _full_name(recipe.repository, tag)
    with tempfile.TemporaryDirectory(prefix="smdp-image-") as folder:
        context = stage(recipe, Path(folder), wheels)
        reference = f"{recipe.repository}:{recipe.tag(context.content_hash)}"
        fresh = rebuild or not tool.has(reference)
        if fresh:
            run(tool.build(context.folder, reference, recipe.args), tool.environment(), progress)
    if other is not None:
        tool.name_also(reference, other)
    return Built(reference, fresh)


def _full_name(repository: str, tag: str) -> str:
    name = tag if ":" in tag.rpartition("/")[2] else f"{repository}:{tag}"
    if parse_image(name) is None:
        raise Refused(f"{tag!r} is no name for an image: give a tag such as latest, or NAME:TAG in small letters")
    return name


def run(command: Sequence[str], environment: Mapping[str, str], progress: Progress) -> None:
    """Run a tool, handing on its lines as they come.

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
