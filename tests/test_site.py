"""The documentation site builds strictly, contains every page, loads nothing from other servers, and has a search."""

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

pytestmark = pytest.mark.runs

#: Attributes whose address a browser fetches without a click, by tag.
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of the site and the output of the build."""
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


class FetchedAddresses(HTMLParser):
    """Collects the addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in LOADS and attributes.get("rel") not in {"canonical", "next", "prev"}:
            self.addresses.append(attributes.get(LOADS[tag]) or "")


def loads(site: Path) -> Iterator[str]:
    for page in site.rglob("*.html"):
        parser = FetchedAddresses()
        parser.feed(page.read_text())
        yield from parser.addresses
    for sheet in site.rglob("*.css"):
        yield from re.findall(r"url\(['\"]?([^)'\"]+)", sheet.read_text())


def test_build_prints_no_warning(built: tuple[Path, str]) -> None:
    assert "WARNING" not in built[1]


def test_site_contains_every_page(built: tuple[Path, str]) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(built[0]) for page in built[0].rglob("*.html")}


def test_site_loads_nothing_from_other_servers(built: tuple[Path, str]) -> None:
    fetched = set(loads(built[0]))
    assert [one for one in fetched if re.match(r"(https?:)?//", one)] == []
    assert any(one.endswith(".css") for one in fetched)


def test_api_page_has_every_exported_name(built: tuple[Path, str]) -> None:
    shown = set(re.findall(r'id="smdp_launch[\w.]*\.(\w+)"', (built[0] / "reference" / "api.html").read_text()))
    assert [one for one in smdp_launch.__all__ if one not in {*shown, "__version__"}] == []


def test_search_works_from_files_and_finds_every_error_page(built: tuple[Path, str]) -> None:
    index = (built[0] / "search" / "search_index.js").read_text()
    assert index.startswith("var __index = {")
    codes = [page.stem for page in (ROOT / "docs" / "errors").glob("*.md")]
    assert [code for code in codes if f'"errors/{code}.html"' not in index] == []
    assert '<script src="assets/iframe-worker.js">' in (built[0] / "index.html").read_text()


def test_error_pages_are_not_in_the_navigation(built: tuple[Path, str]) -> None:
    page = (built[0] / "index.html").read_text()
    assert "reference/errors.html" in page
    assert "errors/SMDP" not in page
