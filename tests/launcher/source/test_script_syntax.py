"""The entry point as a file: what Python or the kernel refuses is reported at its line."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_mapping
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.source.script.script import MAX_SCRIPT, parse_script
from smdp_launch.source.syntax.scopes import dotted
from tests.conftest import ROOT
from tests.launcher.source.command_lines import job
from tests.support import command

CODES = ("SMDP430", "SMDP431", "SMDP439", "SMDP458")


def found(folder: Path, entry: str = "train.py", version: str = "2.0.1", **files: bytes) -> list[Diagnostic]:
    """The diagnostics about the entry point. In the names of ``files``, ``__`` means a dot."""
    (folder / "src").mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / "src" / name.replace("__", ".")).write_bytes(content)
    data = job({}, entry)
    if version != "2.0.1":
        data["framework"]["version"] = version
        data["engine"] = "smdistributed"
        del data["image"]
    return [one for one in check_mapping(data, folder, environ={}).diagnostics if one.code in CODES]


def test_syntax_error_in_module_is_reported_at_its_line(tmp_path: Path) -> None:
    (one,) = found(tmp_path, train__py=b"import torch\nimport model\n", model__py=b"LAYERS = 3\nWIDTH = [1, 2\n")
    assert one.code == "SMDP430"
    assert one.message == "model.py has a syntax error: '[' was never closed"
    assert one.span is not None
    assert (Path(one.span.file).name, one.span.line, one.span.column) == ("model.py", 2, 9)
    assert one.span.source == "WIDTH = [1, 2"


@pytest.mark.parametrize(
    "imports",
    [
        b"try:\n    import model\nexcept Exception:\n    pass\n",
        b"def load():\n    import model\n",
        b"if 0:\n    import model\n",
    ],
)
def test_conditionally_imported_module_is_not_checked(tmp_path: Path, imports: bytes) -> None:
    assert found(tmp_path, train__py=imports, model__py=b"WIDTH = [1, 2\n") == []


@pytest.mark.parametrize(
    ("version", "script", "is_wrong"),
    [
        ("1.9.1", b"match 1:\n    case 1:\n        pass\n", True),  # Python 3.8
        ("2.0.1", b"match 1:\n    case 1:\n        pass\n", False),  # Python 3.10
        ("1.12.1", b"def f(a, /):\n    return (b := a)\n", False),  # Python 3.8
        ("1.6.0", b"print((b := 1))\n", True),  # Python 3.6
        ("2.0.1", b"try:\n    pass\nexcept* ValueError:\n    pass\n", True),  # Python 3.10
    ],
)
def test_grammar_is_that_of_the_jobs_python(tmp_path: Path, version: str, script: bytes, is_wrong: bool) -> None:
    assert [one.code for one in found(tmp_path, version=version, train__py=script)] == ["SMDP430"] * is_wrong


@pytest.mark.parametrize(
    ("script", "is_syntax"), [(b"type Pair = tuple[int, int]\n", False), (b"x = [1\n", True), (b"print 'x'\n", True)]
)
def test_syntax_of_newer_python_is_not_checked(script: bytes, is_syntax: bool) -> None:
    problem = parse_script(script, (3, 99)).problem
    if problem is not None or is_syntax:
        assert problem is not None
        assert problem.is_syntax is is_syntax


SAVES = b"import torch\nimport torch.distributed as dist\n\ndist.init_process_group('smddp')\nrank = dist.get_rank()\n"


def _calling(bodies: list[str]) -> bytes:
    """Functions with these bodies, in the order of their numbers; the last saves, and the first is called."""
    functions = [f"def step_{number}():\n    {body}\n" for number, body in enumerate(bodies)]
    last = f"def step_{len(bodies)}():\n    torch.save({{}}, 'x')\n"
    return SAVES + "".join([*functions, last, "step_0()\n"]).encode()


HOSTILE = {
    "deep brackets": b"x = " + b"(" * 100_000 + b")" * 100_000,
    "deep operators": b"x = " + b"-" * 100_000 + b"1",
    "a long sum": b"x = " + b"+".join([b"1"] * 60_000),
    "deep blocks": b"".join(b" " * n + b"if x:\n" for n in range(99)) + b" " * 99 + b"pass\n",
    "deep attributes": b"x" + b".a" * 60_000,
    "ten megabytes": b"x = 1\n" * (10_000_000 // 6),
    "null bytes": b"x = 1\0\n",
    "latin-1 without saying so": b"# caf\xe9\nx = 1\n",
    "utf-16": "x = 1\n".encode("utf-16"),
    "an unknown encoding": b"# -*- coding: nonsense -*-\nx = 1\n",
    "a huge number": b"x = " + b"9" * 200_000,
    "many options": b"import argparse\np = argparse.ArgumentParser()\n"
    + b"".join(b"p.add_argument('--o%d', type=int)\n" % n for n in range(5_000))
    + b"p.parse_args()\n",
    "many parsers and options": b"import argparse\np = argparse.ArgumentParser()\n"
    + b"p = p\n" * 5_000
    + b"p.add_argument('--a')\n" * 4_000
    + b"p.parse_args()\n",
    "many calls of a function that adds many options": b"import argparse\ndef add(name, p):\n"
    + b" p.add_argument(name)\n" * 2_500
    + b"p = argparse.ArgumentParser()\n"
    + b"add('--a', p)\n" * 5_000
    + b"p.parse_args()\n",
    "an import of itself": b"import train\nfrom train import *\n",
    "a chain of functions": _calling([f"step_{number + 1}()" for number in range(2000)]),
    "functions that call two others": _calling([f"step_{number + 1}(); step_{number + 1}()" for number in range(60)]),
    "thousands of saves": SAVES + b"if rank == 0: torch.save(model, 'x')\n" * 3000,
    "a path of thousands of values": b"import torch\np = "
    + b"q + " * 400
    + b"p\n"
    + b"p = q\nq = p\n" * 5000
    + b"torch.save(p, p)\n" * 50,
    "thousands of blanks": b"import torch\n" + b" " * 100_000 + b"\n",
}


@pytest.mark.parametrize(("parts", "is_name"), [(50, True), (2_000, False)])
def test_very_long_chain_of_attributes_is_no_name(parts: int, is_name: bool) -> None:
    chain = "x" + ".a" * parts
    assert dotted(ast.parse(chain, mode="eval").body) == (chain if is_name else "")


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_script_gives_diagnostic_or_none(tmp_path: Path, script: bytes) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_bytes(script)
    (tmp_path / "job.yaml").write_text((ROOT / "tests/launcher/golden/wrong/argument-missing/job.yaml").read_text())

    ran = command.run(tmp_path, "validate", limits={resource.RLIMIT_AS: 1 << 30, resource.RLIMIT_CPU: 10})
    assert ran.returncode in (0, 3), ran.stderr
    assert "Traceback" not in ran.stderr
    if len(script) > MAX_SCRIPT or script.startswith(b"x = (("):
        assert "note[SMDP430]: train.py is not checked" in ran.stderr


@pytest.mark.parametrize(
    ("entry", "content", "said"),
    [
        ("train.ipynb", b"{}", "is a notebook"),
        ("train.yaml", b"epochs: 3\n", "is neither Python nor a shell script"),
        ("train", b"import torch\n", "is Python, but without the suffix .py"),
        ("train.sh", b"#!/bin/bash\r\n", "has a carriage return at the end of its first line"),
        ("train.sh", b"set -e\r\npython train.py\r\n", "has a carriage return at the end of its first line"),
    ],
)
def test_entry_point_that_container_cannot_start_is_reported(
    tmp_path: Path, entry: str, content: bytes, said: str
) -> None:
    (one,) = found(tmp_path, entry, **{entry.replace(".", "__"): content})
    assert one.code == "SMDP431"
    assert said in one.message


@pytest.mark.parametrize(
    ("entry", "content"),
    [
        ("train.sh", b"python train.py\n"),
        ("train.sh", b"#!/bin/bash\npython train.py\n"),
        ("train", b"#!/usr/bin/env python3\nimport torch\n"),
        ("train", b"\x7fELF\x02\x01\x01"),
        ("train", b'python train.py "$@"\n'),
        ("train.pl", b"#!/usr/bin/perl\n"),
    ],
)
def test_entry_point_that_container_starts_is_accepted(tmp_path: Path, entry: str, content: bytes) -> None:
    assert found(tmp_path, entry, **{entry.replace(".", "__"): content}) == []


def test_file_of_package_is_not_checked(tmp_path: Path) -> None:
    assert found(tmp_path, "trainer", setup__py=b"", trainer=b"import torch\n") == []


@pytest.mark.parametrize(
    "script",
    [
        b"from .data import load\n",
        b"import os\nfrom . import data\n",
        b"if __name__ == '__main__':\n    from .data import x\n",
    ],
)
def test_relative_import_in_entry_point_is_reported_at_its_line(tmp_path: Path, script: bytes) -> None:
    (one,) = found(tmp_path, train__py=script, data__py=b"")
    assert one.code == "SMDP439"
    assert one.span is not None
    assert one.span.source.strip() == one.text == script.decode().splitlines()[-1].strip()
    ran = subprocess.run(
        [sys.executable, "train.py"], check=False, cwd=tmp_path / "src", capture_output=True, text=True
    )
    assert "attempted relative import with no known parent package" in ran.stderr


@pytest.mark.parametrize(
    "script",
    [
        b"try:\n    from .data import load\nexcept ImportError:\n    from data import load\n",
        b"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .data import load\n",
        b"def load():\n    from . import data\n",
        b"__package__ = 'src'\nfrom . import data\n",
        b"import package.module\n",
    ],
)
def test_relative_import_that_may_not_run_is_accepted(tmp_path: Path, script: bytes) -> None:
    (tmp_path / "src" / "package").mkdir(parents=True)
    (tmp_path / "src" / "package" / "module.py").write_text("from . import other\n")
    assert found(tmp_path, train__py=script, data__py=b"") == []


def test_missing_files_of_requirements_are_reported_with_their_lines(tmp_path: Path) -> None:
    requirements = b"numpy\n-r more.txt\n./libs/a\n-c limits.txt\n-e libs/b\n-e ../shared\n-e .\n"
    (tmp_path / "src" / "libs" / "b").mkdir(parents=True)
    (tmp_path / "src" / "libs" / "b" / "setup.py").write_text("")
    files = {"train__py": b"", "requirements__txt": requirements, "limits__txt": b"", "__smdpignore": b"limits.txt\n"}
    reported = found(tmp_path, **files)
    assert [(one.code, one.span.line, one.text) for one in reported if one.span is not None] == [
        ("SMDP458", 2, "-r more.txt"),
        ("SMDP458", 3, "./libs/a"),
        ("SMDP458", 4, "-c limits.txt"),
        ("SMDP458", 6, "-e ../shared"),
    ]
    assert "change .smdpignore so that it does not exclude limits.txt" in reported[2].help


def test_requirements_of_a_shell_script_are_not_checked(tmp_path: Path) -> None:
    assert found(tmp_path, "start.sh", start__sh=b"#!/bin/bash\n", requirements__txt=b"-r more.txt\n") == []
