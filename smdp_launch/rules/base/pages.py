"""The page of each code, from a checkout's docs or from the wheel."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def folder() -> Path:
    """Where the pages lie.

    Raises:
        FileNotFoundError: neither here nor there, so the installation is not whole.
    """
    package = Path(__file__).resolve().parents[2]
    for one in (package / "_pages", package.parent / "docs" / "errors"):
        if one.is_dir():
            return one
    raise FileNotFoundError(f"the pages of the codes are not in {package}")


@functools.cache
def codes() -> tuple[str, ...]:
    """Every code that has a page, in order."""
    return tuple(sorted(one.stem for one in folder().glob("SMDP[0-9][0-9][0-9].md")))


def page(code: str) -> str:
    """The page in Markdown.

    Raises:
        FileNotFoundError: there is no such code.
    """
    return (folder() / f"{code}.md").read_text("utf-8")


def title(code: str) -> str:
    """What stands behind the code in its page's first line.

    Raises:
        FileNotFoundError: there is no such code.
    """
    return page(code).partition("\n")[0].partition(": ")[2]
