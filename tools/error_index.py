"""Writes docs/errors.md, the index of the codes, from their pages.

python tools/error_index.py            # rewrite it
python tools/error_index.py --check    # say whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from smdp_launch.rules.base.pages import codes, title

INDEX = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
GROUPS = {
    "1": "YAML",
    "2": "The schema and the layers",
    "3": "Compute, framework and image",
    "4": "Source, data and network",
    "5": "Spot, batch and mixed precision",
    "6": "The request's limits",
    "7": "Secrets",
    "8": "Account",
    "9": "Running",
}
HEAD = """\
# Errors

What `validate` (and every other command, before it does anything) tells about a job file. Each finding has a code, a
place, a reason and a fix; all of them come at once. Each code has a page, which `smdp-launch explain CODE` shows too.
An error means that the job would be refused or could not do what it was asked; a warning is advice, and
`silence: [CODE]` in the job file leaves it out.
"""


def main() -> int:
    stale = not INDEX.exists() or INDEX.read_text() != index()
    if "--check" in sys.argv:
        if stale:
            print("docs/errors.md is stale: run tools/error_index.py")
        return int(stale)
    INDEX.write_text(index())
    return 0


def index() -> str:
    """The page, one table for each group of codes that has any."""
    tables = [_table(name, [one for one in codes() if one[4] == digit]) for digit, name in GROUPS.items()]
    return "\n".join([HEAD, *(one for one in tables if one)])


def _table(name: str, found: list[str]) -> str:
    rows = [f"| [{code}](errors/{code}.md) | {title(code)} |" for code in found]
    return "\n".join([f"## {name}", "", "| code | |", "|---|---|", *rows]) + "\n" if found else ""


if __name__ == "__main__":
    sys.exit(main())
