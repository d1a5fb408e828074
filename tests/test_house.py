"""The layout of the source: sizes of files and folders, imports without circles, and the words."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

from tests.conftest import ROOT
from tools import old_words

#: Folders of data, of which one more file is one more case.
DATA = ("docs/errors", "docs/schemas", "native/fuzz/corpus/", "tests/launcher/good", "tests/launcher/golden/")
LONGEST = {".py": 400, ".cc": 600, ".h": 600}
MOST_FILES = 20
PACKAGES = ("smdp_launch", "containers/entrypoint/smdp_entrypoint", "native/python/smdp_engine")


def tracked(*patterns: str) -> list[PurePosixPath]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [PurePosixPath(one) for one in listed.stdout.split("\0") if one and (ROOT / one).is_file()]


def test_no_source_file_is_longer_than_its_limit() -> None:
    lengths = {
        str(one): len((ROOT / one).read_text().splitlines())
        for one in tracked()
        if one.suffix in LONGEST
        and not str(one).startswith(("tests/", "native/tests/", "containers/entrypoint/tests/"))
    }
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST[PurePosixPath(name).suffix]} == {}


def test_no_folder_has_more_files_than_a_reader_can_survey() -> None:
    counts = Counter(str(one.parent) for one in tracked())
    crowded = {name: count for name, count in counts.items() if count > MOST_FILES}
    assert {name: count for name, count in crowded.items() if not f"{name}/".startswith(DATA)} == {}


def modules_of(package: str) -> dict[str, Path]:
    base = (ROOT / package).parent
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        parts = path.relative_to(base).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ``known`` that one imports, wherever in it the import stands, those for types alone included."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, (above, node.module)))
            for one in node.names:
                found.add(f"{source}.{one.name}" if f"{source}.{one.name}" in known else source)
    return (found & known.keys()) - {name}


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_circle_between_modules_or_folders(package: str) -> None:
    known = modules_of(package)
    top = PurePosixPath(package).name
    modules = {name: imports_of(name, path, known) for name, path in known.items()}
    folders: dict[str, set[str]] = defaultdict(set)
    for name, path in known.items():
        here = name if path.stem == "__init__" else name.rpartition(".")[0]
        for other in modules[name]:
            there = other if known[other].stem == "__init__" else other.rpartition(".")[0]
            if top not in (here, there) and here != there:  # the ground modules and the exports stand in one folder
                folders[here].add(there)
    for graph in (modules, folders):
        try:
            TopologicalSorter({name: others for name, others in graph.items() if name != top}).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


def test_no_old_word_is_left() -> None:
    assert [f"{one.path}:{one.line}: {one.word}" for one in old_words.found([])] == []


def test_no_test_module_imports_another() -> None:
    """What several of them use stands in a module of support."""
    found = [
        f"{path}: {module}"
        for path in tracked("tests/*.py", "native/tests/*.py", "containers/entrypoint/tests/*.py")
        if not str(path).startswith(DATA)
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ImportFrom | ast.Import)
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        if module.rpartition(".")[2].startswith("test_")
    ]
    assert found == []


def test_long_cases_exist() -> None:
    lines = (ROOT / "tests" / "long_cases.txt").read_text(encoding="utf-8").splitlines()
    cases = [line for line in lines if not line.startswith("#")]
    assert cases == sorted(set(cases))
    for case in cases:
        file, _, test = case.partition("::")
        name = test.partition("[")[0]
        assert re.search(rf"^ *def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), case
