"""Hyperparameters and the script's command line: the rules report exactly what argparse, click and absl refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from smdp_launch.checking.job import check_mapping
from smdp_launch.diagnostics import Severity
from smdp_launch.request.hyperparameters import script_arguments
from tests.conftest import clean_environment
from tests.launcher.source.command_lines import CODES, found, is_refused, job
from tests.support.doc_examples import blocks
from tests.support.properties import examples

NAMES = ["lr", "learning_rate", "learning-rate", "b", "batch", "batch-size", "opt", "x"]
DASHES = [-1, -0.5, -1e-5, "-1,2", "-", "-x", "--opt", "- a", "--"]
VALUES = st.sampled_from(
    [1, 2.0, 0.1, "sgd", "adam", "7", True, False, None, [1, 2], {"a": 1}, "", "a b", 1e-5, *DASHES]
)
SPELLINGS = st.sampled_from(NAMES).flatmap(
    lambda name: st.sampled_from([[f"--{name}"], [f"-{name}"], [f"-{name[0]}", f"--{name}"], [name.replace("-", "_")]])
)
ARGUMENT = st.fixed_dictionaries(
    {"spellings": SPELLINGS},
    optional={
        "type": st.sampled_from(["int", "float", "str", "bool"]),
        "nargs": st.sampled_from(["?", "*", "+", 1, 2]),
        "action": st.sampled_from(["store_true", "count", "append", "store", "store_const"]),
        "choices": st.sampled_from([["sgd", "adam"], [1, 2], [0.1]]),
        "required": st.booleans(),
        "default": st.sampled_from([None, 3, "sgd"]),
        "place": st.sampled_from(["parser", "group", "exclusive", "helper"]),
    },
)


def script_of(arguments: list[dict[str, Any]], known: bool, abbreviations: bool) -> str:
    lines = ["import argparse", "", "def helper(target):", "    pass"]
    calls: dict[str, list[str]] = {"parser": [], "group": [], "exclusive": [], "helper": []}
    for one in arguments:
        words = [repr(each) for each in one["spellings"]]
        words += [f"type={one['type']}"] if "type" in one else []
        words += [
            f"{name}={one[name]!r}" for name in ("nargs", "action", "choices", "required", "default") if name in one
        ]
        calls[one.get("place", "parser")].append(", ".join(words))
    lines += [f"    target.add_argument({one})" for one in calls["helper"]]
    lines += ["", "def main():", f"    parser = argparse.ArgumentParser(allow_abbrev={abbreviations})"]
    lines += [f"    parser.add_argument({one})" for one in calls["parser"]]
    lines += ["    group = parser.add_argument_group('more')"]
    lines += [f"    group.add_argument({one})" for one in calls["group"]]
    lines += ["    group = parser.add_mutually_exclusive_group()"]
    lines += [f"    group.add_argument({one})" for one in calls["exclusive"]]
    lines += ["    helper(parser)", f"    parser.{'parse_known_args' if known else 'parse_args'}()", ""]
    return "\n".join([*lines, "if __name__ == '__main__':", "    main()", ""])


@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arguments=st.lists(ARGUMENT, max_size=4),
    hyperparameters=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
    known=st.booleans(),
    abbreviations=st.booleans(),
)
def test_arguments_accepted_by_argparse_are_not_reported(
    tmp_path: Path, arguments: list[dict[str, Any]], hyperparameters: dict[str, Any], known: bool, abbreviations: bool
) -> None:
    script = script_of(arguments, known, abbreviations)
    if is_refused(script, hyperparameters) is False:
        reported = found(tmp_path, script, hyperparameters)
        # A warning shows an accepted value that changes its meaning.
        refused = [one for one in reported if one.severity is Severity.ERROR]
        assert [one for one in refused if "ignores the value" not in one.message] == [], script


PARSER = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--learning-rate", type=float, default=0.1)
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--layers", type=int, choices=range(1, 5), default=1)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--betas", type=float, nargs=2)
parser.add_argument("-wd", type=float)
arguments = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("given_", "code", "said"),
    [
        ({"epoch_count": 3}, "SMDP432", "train.py has no option --epoch_count"),
        ({"learning_rate": 0.1}, "SMDP432", "train.py has no option --learning_rate"),
        ({"wd": 0.1}, "SMDP432", "train.py has no option --wd"),
        ({"e": 3}, "SMDP432", "train.py has no option -e"),
        ({"epochs": 0.5}, "SMDP433", 'line 4 of train.py reads --epochs with int(), which refuses "0.5"'),
        ({"epochs": None}, "SMDP433", 'which refuses ""'),
        ({"learning-rate": "fast"}, "SMDP433", 'reads --learning-rate with float(), which refuses "fast"'),
        ({"optimizer": "adm"}, "SMDP434", 'accepts sgd, adam for --optimizer, not "adm"'),
        ({"layers": 5}, "SMDP434", 'accepts 1, 2, 3, 4 for --layers, not "5"'),
        ({"amp": True}, "SMDP435", "declares --amp as a flag"),
        ({"betas": 0.9}, "SMDP435", "needs 2 values for --betas"),
    ],
)
def test_arguments_refused_by_argparse_are_reported(
    tmp_path: Path, given_: dict[str, Any], code: str, said: str
) -> None:
    assert is_refused(PARSER, given_)
    (one,) = found(tmp_path, PARSER, given_)
    assert one.code == code
    assert said in one.message


@pytest.mark.parametrize(
    "given_",
    [{"epoch": 3}, {"epochs": "7"}, {"learning-rate": 1}, {"optimizer": "adam"}, {"layers": 4}, {"learn": "1e-3"}],
)
def test_abbreviations_and_numbers_as_text_are_accepted(tmp_path: Path, given_: dict[str, Any]) -> None:
    assert is_refused(PARSER, given_) is False
    assert found(tmp_path, PARSER, given_) == []


def test_missing_required_arguments_are_reported(tmp_path: Path) -> None:
    script = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\n"
        "p.add_argument('--lr', required=True)\np.parse_args()\n"
    )
    assert [one.message for one in found(tmp_path, script, {})] == [
        "line 3 of train.py requires the positional argument data; SageMaker passes only options",
        "line 4 of train.py requires --lr, which the job does not set",
    ]
    assert [one.code for one in found(tmp_path, script.replace("'data'", "'--data'"), {"lr": 1})] == []


def test_misspelt_required_option_gives_one_error(tmp_path: Path) -> None:
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--rate', required=True)\np.parse_args()\n"
    (one,) = found(tmp_path, script, {"rat_e": 1})
    assert (one.code, one.help) == ("SMDP432", 'did you mean "rate"?')


def test_options_of_imported_modules_count(tmp_path: Path) -> None:
    script = "import argparse\nimport more\np = argparse.ArgumentParser()\nmore.add(p)\np.parse_args()\n"
    more = "def add(target):\n    target.add_argument('--depth', type=int)\n"
    assert found(tmp_path, script, {"depth": 3}, more=more) == []
    assert [one.code for one in found(tmp_path, script, {"depth": "x", "width": 3}, more=more)] == [
        "SMDP432",
        "SMDP433",
    ]


OPEN = {
    "known arguments only": "args, _ = parser.parse_known_args()",
    "a parser of another package": "import torchx\ntorchx.add_arguments(parser)\nargs = parser.parse_args()",
    "options made at run time": "for one in names:\n    parser.add_argument(f'--{one}')\nargs = parser.parse_args()",
    "options by another name": "add = parser.add_argument\nadd('--depth')\nargs = parser.parse_args()",
    "words that the script makes": "args = parser.parse_args(['--lr', '1'])",
    "words that the script changes": "import sys\nsys.argv[1:] = []\nargs = parser.parse_args()",
    "text that is run as code": "exec(open('configurator.py').read())\nargs = parser.parse_args()",
    "commands of its own": "parser.add_subparsers()\nargs = parser.parse_args()",
    "no reading at all": "",
    "options from a dictionary": "parser.add_argument(*names)\nargs = parser.parse_args()",
    "a prefix of its own": "parser = argparse.ArgumentParser(prefix_chars='+')\nargs = parser.parse_args()",
    "a rest": "parser.add_argument('rest', nargs=argparse.REMAINDER)\nargs = parser.parse_args()",
    "Lightning's own": "from lightning.pytorch.cli import LightningCLI\nargs = parser.parse_args()",
}


@pytest.mark.parametrize("rest", OPEN.values(), ids=OPEN.keys())
def test_unknown_names_are_accepted_if_options_are_unknown(tmp_path: Path, rest: str) -> None:
    script = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n{rest}\n"
    assert found(tmp_path, script, {"depth": 3}) == []


def test_unknown_names_are_accepted_with_unreadable_module(tmp_path: Path) -> None:
    script = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "try:\n    import more\nexcept Exception:\n    pass\nparser.parse_args()\n"
    )
    assert found(tmp_path, script, {"depth": 3}, more="def add(:\n") == []


def test_parser_of_module_that_does_not_run_is_ignored(tmp_path: Path) -> None:
    script = "import tools\nprint('no command line')\n"
    tools = (
        "import argparse\ndef unused():\n    p = argparse.ArgumentParser()\n    p.parse_args()\n"
        "if __name__ == '__main__':\n    p = argparse.ArgumentParser()\n"
        "    p.add_argument('--x', required=True)\n    p.parse_args()\n"
    )
    assert found(tmp_path, script, {"depth": 3}, tools=tools) == []


CLICK = """\
import click

@click.command()
@click.option("--epochs", type=int, default=3)
@click.option("--rate", default=0.1)
@click.option("--optimizer", type=click.Choice(["sgd", "adam"]))
@click.option("--amp/--no-amp")
@click.option("--data", required=True)
def main(epochs, rate, optimizer, amp, data):
    print(epochs)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"epoch": 3, "data": "x"}, "SMDP432"),
        ({"epochs": 0.5, "data": "x"}, "SMDP433"),
        ({"rate": "fast", "data": "x"}, "SMDP433"),
        ({"optimizer": "adm", "data": "x"}, "SMDP434"),
        ({"amp": True, "data": "x"}, "SMDP435"),
        ({"epochs": 3}, "SMDP436"),
        ({"epochs": 3, "rate": 1, "optimizer": "sgd", "data": "x"}, None),
    ],
)
def test_arguments_refused_by_click_are_reported(tmp_path: Path, given_: dict[str, Any], code: str | None) -> None:
    assert is_refused(CLICK, given_) is (code is not None)
    assert [one.code for one in found(tmp_path, CLICK, given_)] == ([code] if code else [])


def test_unknown_names_are_accepted_with_other_click_decorators(tmp_path: Path) -> None:
    script = CLICK.replace("@click.command()\n", "@click.command()\n@more_options\n")
    assert found(tmp_path, script, {"depth": 1, "data": "x"}) == []


ABSL = """\
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_integer("epochs", 3, "epochs")
flags.DEFINE_float("rate", 0.1, "rate")
flags.DEFINE_enum("optimizer", "sgd", ["sgd", "adam"], "optimizer")
flags.DEFINE_bool("amp", False, "mixed precision")
flags.DEFINE_string("data", None, "data", required=True)

def main(_):
    print(FLAGS.epochs)

if __name__ == "__main__":
    app.run(main)
"""


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"epoch": 3, "data": "x"}, "SMDP432"),
        ({"epochs": 0.5, "data": "x"}, "SMDP433"),
        ({"optimizer": "adm", "data": "x"}, "SMDP434"),
        ({"amp": False, "data": "x"}, "SMDP435"),
        ({"epochs": 3}, "SMDP436"),
        ({"epochs": 3, "rate": 1, "optimizer": "sgd", "data": "x"}, None),
    ],
)
def test_absl_flags_are_read(tmp_path: Path, given_: dict[str, Any], code: str | None) -> None:
    assert [one.code for one in found(tmp_path, ABSL, given_)] == ([code] if code else [])


def test_unknown_names_are_accepted_with_packages_that_may_define_absl_flags(tmp_path: Path) -> None:
    assert found(tmp_path, f"import official\n{ABSL}", {"epoch": 3, "data": "x"}) == []


def test_absl_flag_takes_no_value(tmp_path: Path) -> None:
    (one,) = found(tmp_path, ABSL, {"amp": False, "data": "x"})
    assert "absl ignores the value and sets the flag" in one.message


def test_start_script_of_page_passes_positional_argument(tmp_path: Path) -> None:
    """The script ``start.py`` of docs/errors/SMDP436.md, as the job's entry point."""
    trains = "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.add_argument('--epochs')\n"
    trains += "args = p.parse_args()\nprint(args.data, args.epochs, __name__)\n"
    assert [one.code for one in found(tmp_path, trains, {"epochs": 3})] == ["SMDP436"]
    (start,) = blocks("docs/errors/SMDP436.md", "python")
    (tmp_path / "src" / "start.py").write_text(start)
    checked = check_mapping(job({"epochs": 3}, "start.py"), tmp_path, environ={})
    assert [one.code for one in checked.diagnostics if one.code in CODES] == []
    ran = subprocess.run(
        [sys.executable, tmp_path / "src" / "start.py", *script_arguments({"epochs": 3})],
        env=clean_environment(SM_CHANNEL_TRAIN="/data"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "/data 3 __main__\n"
