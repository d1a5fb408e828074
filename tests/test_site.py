"""The documentation as a site: it builds strictly, every page of docs is in it, and it loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import smdp_launch
from tests.conftest import ROOT

#: Attributes whose address a browser fetches by itself, by tag; a link to somewhere is not one.
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The site's folder, and all that the build said."""
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder, ran.stdout + ran.stderr


class Loaded(HTMLParser):
    """The addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADS and given.get("rel") not in {"canonical", "next", "prev"}:
            self.addresses.append(given.get(LOADS[tag]) or "")


def loads(site: Path) -> Iterator[str]:
    for page in site.rglob("*.html"):
        parser = Loaded()
        parser.feed(page.read_text())
        yield from parser.addresses
    for sheet in site.rglob("*.css"):
        yield from re.findall(r"url\(['\"]?([^)'\"]+)", sheet.read_text())


def test_it_builds_without_a_warning(built: tuple[Path, str]) -> None:
    assert "WARNING" not in built[1]


def test_every_page_is_in_it(built: tuple[Path, str]) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(built[0]) for page in built[0].rglob("*.html")}


def test_it_loads_nothing_from_elsewhere(built: tuple[Path, str]) -> None:
    fetched = set(loads(built[0]))
    assert [one for one in fetched if re.match(r"(https?:)?//", one)] == []
    assert any(one.endswith(".css") for one in fetched)


def test_the_api_page_has_every_name_that_is_exported(built: tuple[Path, str]) -> None:
    shown = set(re.findall(r'id="smdp_launch[\w.]*\.(\w+)"', (built[0] / "api.html").read_text()))
    assert [one for one in smdp_launch.__all__ if one not in {*shown, "__version__"}] == []
