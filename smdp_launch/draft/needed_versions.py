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
    certain: False if other requirements may keep pip from installing what needs this version.
    file: of the import; None for a requirement.
    """

    version: str
    what: str
    file: str | None = None
    imported: Named | None = None
    requirement: Requirement | None = None
    certain: bool = True


def needs(program: Program, requirements: Requirements, python: tuple[int, int] | None) -> Iterator[Need]:
    """Args:
    python: of the job's image; None if it is not known.
    """
    for file, training in program.files:
        for one in training.imports:
            since = needed_by_import(one.name)
            if since is not None and one.certain:
                yield Need(since, one.name, file, one)
    required, known = [one for one in requirements.packages if one.name == "transformers"], transformers_need()
    if not required or any(not one.text or ";" in one.text for one in required):
        return
    together = required[0]._replace(clauses=tuple(each for one in required for each in one.clauses))
    # pip installs the newest release that the requirements and Python allow.
    newest = (f"{parts(known.release)[0]}.{minor}.0" for minor in range(100))
    if together.allows(*newest) and python is not None and python >= parts(known.python):
        what = f"transformers {parts(known.release)[0]}"
        others = [one for one in requirements.packages if one not in required]
        is_certain = not requirements.includes and not any(map(_is_limited, others))
        yield Need(known.pytorch, what, requirement=required[0], certain=is_certain)


def _is_limited(requirement: Requirement) -> bool:
    """Whether pip may install an old release, whose own requirements are not known."""
    return not requirement.text or any(operator not in (">", ">=", "!=") for operator, _ in requirement.clauses)
