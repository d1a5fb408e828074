"""The PyTorch that the imports and the requirements of a script need at least."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.catalog.frameworks import needed_by_import, parts, transformers_need
from smdp_launch.source.requirements import Requirement, Requirements
from smdp_launch.source.script.program import Program
from smdp_launch.source.script.training import Named


class Need(NamedTuple):
    """Args:
    version: the first PyTorch that has what the script uses.
    file: of the import; None for a requirement.
    """

    version: str
    what: str
    file: str | None = None
    imported: Named | None = None
    requirement: Requirement | None = None


def needs(program: Program, requirements: Requirements, python: tuple[int, int] | None) -> Iterator[Need]:
    """Args:
    python: of the job's image; None if it is not known.
    """
    for file, training in program.files:
        for one in training.imports:
            since = needed_by_import(one.name)
            if since is not None and one.certain:
                yield Need(since, one.name, file, one)
    required, known = requirements.package("transformers"), transformers_need()
    if required is None or not required.text or ";" in required.text:
        return
    # pip installs the newest release that the requirement and Python allow.
    newest = (f"{parts(known.release)[0]}.{minor}.0" for minor in range(100))
    if required.allows(*newest) and python is not None and python >= parts(known.python):
        yield Need(known.pytorch, f"transformers {parts(known.release)[0]}", requirement=required)
