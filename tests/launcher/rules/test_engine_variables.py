"""The launcher's table of the engine's variables is the engine's own, and no variable that is read is reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.request.engine_variables import ENGINE_VARIABLES, PIECES_IN_ARENA, EngineVariable
from tests.conftest import JOB, ROOT, write_job

SOURCE = (ROOT / "native" / "engine" / "base" / "options.cc").read_text(encoding="utf-8")
ROW = re.compile(r'Row\{\{"(SMDP_\w+)", "(\w+)", "\w*", "([^"]*)", ".*"\}, &Options::\w+, ([^,]+), ([^}]+)\}')
NUMBERS = {"kNoBound": 9e15, "kLongest": 30 * 86400.0, "kLongestHeartbeat": 3600.0, "1 << 20": float(1 << 20)}
#: Names in the environment of a process, as the code reads them.
READ = re.compile(r"(?:environ(?:\.get)?\W{1,3}|getenv\W{1,3}|Variable\W{1,3})(SMDP_[A-Z_0-9]*[A-Z0-9])\b")


def number(text: str) -> float:
    return NUMBERS[text] if text in NUMBERS else float(text)


def words(name: str) -> tuple[str, ...]:
    choice = re.search(rf'Choice\{{"{name}", (\w+),', SOURCE)
    if choice is None:
        return ()
    values = re.search(rf"{choice[1]} = \{{([^}}]*)\}}", SOURCE)
    assert values is not None
    return tuple(re.findall(r'"(\w*)"', values[1]))


def rows() -> dict[str, tuple[EngineVariable, str]]:
    """Each row of the engine's table, with the default."""
    found = {
        name: (EngineVariable(kind, number(least), number(most), words(name)), default)  # type: ignore[arg-type]
        for name, kind, default, least, most in ROW.findall(SOURCE)
    }
    assert len(found) == SOURCE.count("Row{{") > 30
    return found


def test_table_is_that_of_the_engine() -> None:
    assert {name: one._replace(note="") for name, one in ENGINE_VARIABLES.items()} == {
        name: one for name, (one, _) in rows().items()
    }


@pytest.mark.parametrize("name", ENGINE_VARIABLES)
def test_defaults_are_accepted_and_others_are_not(name: str) -> None:
    variable, default = ENGINE_VARIABLES[name], rows()[name][1]
    assert variable.accepts(default)
    if variable.kind in ("integer", "number"):
        assert variable.accepts(f"{variable.least:g}")
        assert not variable.accepts(f"{variable.least - 1:g}")
        assert not variable.accepts(f"{variable.most * 10 + 1:.0f}")
        assert variable.accepts("1.5") == (variable.kind == "number")
    if variable.kind != "text":
        assert not any(variable.accepts(one) for one in ("", "yes", " 1", "1 ", "+1", "0x1", "nan", "inf", "\u0661"))
    if variable.words:
        assert not variable.accepts("other")


def test_no_variable_that_is_read_is_reported(tmp_path: Path) -> None:
    folders = (ROOT / "containers", ROOT / "native" / "python", ROOT / "native" / "adapters", ROOT / "smdp_launch")
    files = [one for folder in folders for one in folder.rglob("*.py") if "tests" not in one.parts]
    names = {name for one in files for name in READ.findall(one.read_text(encoding="utf-8"))}
    assert len(names) > 20
    written = "".join(f'  {name}: "1"\n' for name in sorted(names))
    found = check_job(write_job(tmp_path, f"{JOB}environment:\n{written}")).diagnostics
    assert [one.message for one in found if one.code == "SMDP613" and "reads no variable" in one.message] == []


@pytest.mark.parametrize(
    ("variables", "options", "expected"),
    [
        ({"SMDP_ARENA_MIB": 16, "SMDP_SMALL_KIB": 1024}, {"piece_kib": 1024}, []),
        ({"SMDP_ARENA_MIB": 16}, {"piece_kib": 1025}, ["write at least 17, or set SMDP_PIECE_KIB to at most 1024"]),
        (
            {"SMDP_ARENA_MIB": 100, "SMDP_SMALL_KIB": 65536},
            {},
            ["write at least 1024, or set SMDP_SMALL_KIB to at most 6400"],
        ),
        ({"SMDP_SMALL_KIB": 65536}, {"piece_kib": 65536}, []),
    ],
)
def test_pieces_and_shared_memory_are_checked_together(
    tmp_path: Path, variables: dict[str, int], options: dict[str, int], expected: list[str]
) -> None:
    written = "".join(f'  {name}: "{value}"\n' for name, value in variables.items())
    text = f"{JOB}environment:\n{written}engine_options: {json.dumps(options)}\n"
    found = check_job(write_job(tmp_path, text)).diagnostics
    assert [one.help for one in found if one.code == "SMDP613"] == expected
    assert f"kPieces = {PIECES_IN_ARENA};" in SOURCE


@pytest.mark.parametrize("engine", ["nccl", "gloo", "smdistributed"])
def test_other_engines_have_no_such_variables(tmp_path: Path, engine: str) -> None:
    text = JOB.replace("engine: native", f"engine: {engine}") + "environment: {SMDP_TRANSPORT: efa}\n"
    assert "SMDP613" not in {one.code for one in check_job(write_job(tmp_path, text)).diagnostics}
