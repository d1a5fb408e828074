"""Hyperparameters that reach the script with another meaning, or that argparse refuses because of their form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smdp_launch.checking.job import check_mapping
from smdp_launch.diagnostics import Severity
from tests.launcher.source.command_lines import found, is_refused, job

START = "import argparse, ast, json, sys, yaml\nparser = argparse.ArgumentParser()\n"


def script_of(*options: str, known: bool = False) -> str:
    lines = [f"parser.add_argument({one})\n" for one in options]
    return f"{START}{''.join(lines)}parser.parse_{'known_' if known else ''}args()\n"


@pytest.mark.parametrize("known", [True, False])
def test_false_for_type_bool_gives_a_warning(tmp_path: Path, known: bool) -> None:
    script = script_of("'--amp', type=bool", known=known)
    (one,) = found(tmp_path, script, {"amp": False})
    assert (one.code, one.severity) == ("SMDP433", Severity.WARNING)
    assert 'reads --amp with bool(), for which every text except the empty text is true; SageMaker passes "False"' in (
        one.message
    )
    assert found(tmp_path, script, {"amp": True}) == found(tmp_path, script, {"amp": ""}) == []


def test_false_in_a_sweep_of_type_bool_gives_a_warning(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(script_of("'--amp', type=bool"))
    sweep = {
        "objective": {"metric": "loss", "goal": "minimize"},
        "ranges": {"categorical": {"amp": [True, False]}},
        "trials": 2,
    }
    checked = check_mapping({**job({}), "metrics": {"loss": "loss=([0-9.]+)"}, "sweep": sweep}, tmp_path, environ={})
    assert [one.severity for one in checked.diagnostics if one.code == "SMDP433"] == [Severity.WARNING]


def test_flag_with_false_is_reported_if_unknown_arguments_are_ignored(tmp_path: Path) -> None:
    script = script_of("'--amp', action='store_true'", known=True)
    assert is_refused(script, {"amp": False}) is False
    (one,) = found(tmp_path, script, {"amp": False})
    assert one.code == "SMDP435"
    assert "argparse ignores the value and sets the flag" in one.message
    assert found(tmp_path, script, {"amp": True}) == []


@pytest.mark.parametrize(
    ("value", "help_"),
    [
        (-1e-5, 'write the number in decimal form, as text: "-0.00001"'),
        (-1e16, 'write the number in decimal form, as text: "-10000000000000000"'),
        ("-1,2", 'or write a blank before it: " -1,2"'),
        ("--foo", 'or write a blank before it: " --foo"'),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_value_that_argparse_takes_for_an_option_is_reported(
    tmp_path: Path, value: Any, help_: str, known: bool
) -> None:
    script = script_of("'--bias'", known=known)
    assert is_refused(script, {"bias": value})
    (one,) = found(tmp_path, script, {"bias": value})
    assert one.code == "SMDP437"
    assert one.help.endswith(help_)
    written = help_[help_.index('"') :].strip('"')
    assert is_refused(script, {"bias": written}) is False
    assert found(tmp_path, script, {"bias": written}) == []


@pytest.mark.parametrize("value", [-1, -0.5, "-", "- item", "-.5"])
def test_negative_numbers_and_texts_with_a_blank_are_accepted(tmp_path: Path, value: Any) -> None:
    script = script_of("'--bias'")
    assert is_refused(script, {"bias": value}) is False
    assert found(tmp_path, script, {"bias": value}) == []


def test_python_3_14_accepts_every_word_that_begins_like_a_number(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(script_of("'--bias'"))
    newer = job({"bias": -1e-5})
    newer["framework"]["python"] = "3.14"
    codes = {one.code for one in check_mapping(newer, tmp_path, environ={}).diagnostics}
    assert "SMDP437" not in codes


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("json.loads", {"a": 1}, '{"a": 1}'),
        ("json.loads", ["a"], '["a"]'),
        ("json.loads", True, "true"),
        ("yaml.safe_load", {"a": 1}, '{"a": 1}'),
        ("ast.literal_eval", {"a": None}, "{'a': None}"),
    ],
)
def test_value_that_a_parser_of_text_does_not_read_is_reported(
    tmp_path: Path, type_: str, value: Any, text: str
) -> None:
    script = script_of(f"'--config', type={type_}")
    (one,) = found(tmp_path, script, {"config": value})
    assert one.code == "SMDP433"
    assert f"reads --config with {type_}()" in one.message
    assert found(tmp_path, script, {"config": text}) == []


@pytest.mark.parametrize("value", [[1, 2], 3, '{"a": 1}'])
def test_value_that_a_parser_of_text_reads_is_accepted(tmp_path: Path, value: Any) -> None:
    script = script_of("'--config', type=json.loads")
    assert is_refused(script, {"config": value}) is False
    assert found(tmp_path, script, {"config": value}) == []


@pytest.mark.parametrize("known", [True, False])
def test_ambiguous_abbreviation_is_reported(tmp_path: Path, known: bool) -> None:
    script = script_of("'--learning-rate'", "'--learning-decay'", known=known)
    assert is_refused(script, {"learning": 3})
    (one,) = found(tmp_path, script, {"learning": 3})
    assert one.code == "SMDP432"
    assert "--learning is an abbreviation of --learning-rate and --learning-decay" in one.message


def test_name_that_begins_another_name_is_not_ambiguous(tmp_path: Path) -> None:
    script = script_of("'--learning'", "'--learning-rate'", "'--learning-decay'")
    assert is_refused(script, {"learning": 3}) is False
    assert found(tmp_path, script, {"learning": 3}) == []


GROUPS = """\
group = parser.add_mutually_exclusive_group()
group.add_argument("--aa")
group.add_argument("--bb")
group = parser.add_mutually_exclusive_group()
group.add_argument("--cc")
group = parser.add_argument_group("more")
group.add_argument("--dd")
parser.parse_args()
"""


def test_options_of_one_exclusive_group_are_reported(tmp_path: Path) -> None:
    assert is_refused(START + GROUPS, {"aa": 1, "bb": 2})
    (one,) = found(tmp_path, START + GROUPS, {"aa": 1, "bb": 2})
    assert one.code == "SMDP438"
    assert one.message.startswith("--bb and --aa exclude each other: line 3 of train.py")
    assert is_refused(START + GROUPS, {"bb": 1, "cc": 2, "dd": 3}) is False
    assert found(tmp_path, START + GROUPS, {"bb": 1, "cc": 2, "dd": 3}) == []


COMMANDS = """\
parser.add_argument("--seed", type=int)
commands = parser.add_subparsers(dest="command"{})
train = commands.add_parser("train")
train.add_argument("--lr", type=float)
parser.parse_args()
"""


def test_required_subcommand_is_reported(tmp_path: Path) -> None:
    script = START + COMMANDS.format(", required=True")
    assert is_refused(script, {"seed": 1})
    (one,) = found(tmp_path, script, {"seed": 1})
    assert (one.code, one.message) == (
        "SMDP436",
        "line 4 of train.py requires a subcommand; SageMaker passes only options",
    )


def test_option_of_a_subcommand_is_reported(tmp_path: Path) -> None:
    script = START + COMMANDS.format("")
    assert is_refused(script, {"lr": 1})
    (one,) = found(tmp_path, script, {"lr": 1})
    assert one.code == "SMDP436"
    assert one.message.startswith("--lr is an option of a subcommand (line 4 of train.py)")
    assert is_refused(script, {"seed": 1}) is False
    assert found(tmp_path, script, {"seed": 1}) == []


@pytest.mark.parametrize(
    "script",
    [
        START + "sys.argv.insert(1, 'train')\n" + COMMANDS.format(", required=True"),
        START + COMMANDS.format(", required=True").replace("parse_args()", "parse_args(['train', *sys.argv[1:]])"),
        "import argparse\ndef main(words=None):\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_subparsers(required=True).add_parser('train')\n    parser.parse_args(words)\nmain(['train'])\n",
        START + "if len(sys.argv) > 9:\n    parser.add_subparsers(required=True)\nparser.parse_args()\n",
    ],
    ids=["inserted", "in the call", "from the caller", "conditional"],
)
def test_subcommand_that_the_script_may_pass_is_not_reported(tmp_path: Path, script: str) -> None:
    assert found(tmp_path, script, {"lr": 1}) == []
