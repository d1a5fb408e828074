"""The page of each code, from a checkout's docs or from the wheel."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def folder() -> Path:
    """The folder with the pages.

    Raises:
        FileNotFoundError: there is none, so the installation is incomplete.
    """
    package = Path(__file__).resolve().parents[2]
    for one in (package / "_pages", package.parent / "docs" / "errors"):
        if one.is_dir():
            return one
    raise FileNotFoundError(f"the pages of the codes are not in {package}")


@functools.cache
def codes() -> tuple[str, ...]:
    """All codes that have a page, in ascending order."""
    return tuple(sorted(one.stem for one in folder().glob("SMDP[0-9][0-9][0-9].md")))


def page(code: str) -> str:
    """The page in Markdown.

    Raises:
        FileNotFoundError: there is no such code.
    """
    return (folder() / f"{code}.md").read_text("utf-8")


def title(code: str) -> str:
    """The title of the code's page, without the code.

    Raises:
        FileNotFoundError: there is no such code.
    """
    return page(code).partition("\n")[0].partition(": ")[2]
