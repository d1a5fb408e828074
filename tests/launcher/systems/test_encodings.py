"""Output in encodings of Windows' consoles and files, and files that do not depend on the system's encoding."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import JOB, ROOT, clean_environment, write_job
from tests.support import command

NAME = "jöb→.yaml"
ENCODINGS = pytest.mark.parametrize("encoding", ["cp1252", pytest.param("cp437", marks=pytest.mark.runs)])


def run(folder: Path, encoding: str, *arguments: str) -> tuple[int, bytes]:
    """The exit code and the bytes of standard output in the encoding."""
    environment = clean_environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    ran = subprocess.run(
        [sys.executable, "-m", "smdp_launch", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, ran.stdout


@ENCODINGS
def test_text_that_the_encoding_lacks_is_escaped(tmp_path: Path, encoding: str) -> None:
    write_job(tmp_path).rename(tmp_path / NAME)
    code, output = run(tmp_path, encoding, "validate", NAME)
    assert code == ExitCode.OK
    assert output.decode(encoding).splitlines() == [
        f"{NAME.encode(encoding, 'backslashreplace').decode(encoding)}: valid"
    ]


@ENCODINGS
def test_json_is_the_same_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    write_job(tmp_path).rename(tmp_path / NAME)
    (code, output), (same, expected) = (run(tmp_path, one, "validate", "--json", NAME) for one in (encoding, "utf-8"))
    assert (code, same) == (ExitCode.OK, ExitCode.OK)
    assert json.loads(output) == json.loads(expected)
    assert json.loads(output)["job_file"] == NAME
    assert output.isascii()
    assert not expected.isascii()


def test_a_fix_keeps_the_line_ends_of_windows(tmp_path: Path) -> None:
    before = JOB.replace("max_run", "max_rnu").replace("\n", "\r\n").encode()
    path = write_job(tmp_path)
    path.write_bytes(before)
    ran = command.run(tmp_path, "validate", "--fix", "--yes")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert path.read_bytes() == before.replace(b"max_rnu", b"max_run")


def test_init_writes_the_line_ends_that_every_system_reads(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    assert command.run(tmp_path, "init", "--yes", "--notebook").returncode == ExitCode.OK
    written = {one.name: one.read_bytes() for one in tmp_path.iterdir() if one.is_file()}
    assert written.keys() >= {"job.yaml", "job.ipynb"}
    assert not [name for name, content in written.items() if b"\r" in content]


def _opens_without_encoding(tree: ast.Module) -> list[int]:
    """Lines that open a file as text in the encoding of the system."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        named = {one.arg for one in node.keywords}
        modes = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        is_text = (
            (name == "open" and not any("b" in mode for mode in modes) and isinstance(node.func, ast.Attribute))
            or (name == "read_text" and not node.args)
            or (name == "write_text" and len(node.args) < 2)
        )
        if is_text and "encoding" not in named:
            found.append(node.lineno)
    return found


def test_every_text_file_has_an_encoding() -> None:
    """Beside the local cloud's hosts, which run on Linux."""
    elsewhere = ("localcloud/runtime/", "localcloud/isolation/", "localcloud/services/", "localcloud/processes.py")
    others = {"os.open", "tarfile.open", "super().write_text", "opener.open"}
    found = []
    for path in sorted((ROOT / "smdp_launch").rglob("*.py")):
        name = path.relative_to(ROOT / "smdp_launch").as_posix()
        if not name.startswith(elsewhere):
            text = path.read_text(encoding="utf-8")
            lines = text.splitlines()
            found += [
                f"{name}:{line}"
                for line in _opens_without_encoding(ast.parse(text))
                if not any(one in lines[line - 1] for one in others)
            ]
    assert found == []
