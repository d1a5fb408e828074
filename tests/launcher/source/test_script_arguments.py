"""The hyperparameters against the script's command line: what argparse, click and absl themselves refuse is reported,
and nothing that they accept."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from smdp_launch.checking.job import check_mapping
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.request.hyperparameters import script_arguments
from tests.support.properties import examples

CODES = ("SMDP432", "SMDP433", "SMDP434", "SMDP435", "SMDP436")


def job(hyperparameters: Mapping[str, Any], entry: str = "train.py") -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "small",
        "framework": {"name": "pytorch", "version": "2.0.1"},
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/smdp-pytorch:2.0.1-cu118",
        "script": {"entry": entry, "source": "src", "hyperparameters": dict(hyperparameters)},
        "compute": {"instance_type": "ml.p4d.24xlarge", "instance_count": 2, "max_run": 600},
        "channels": {"train": {"s3": "s3://training-data/train"}},
        "output": {"s3": "s3://training-results/output"},
        "role": "arn:aws:iam::123456789012:role/training",
        "region": "us-east-1",
    }


def found(folder: Path, script: str, hyperparameters: Mapping[str, Any], **modules: str) -> list[Diagnostic]:
    """What the rules of the command line report."""
    source = folder / "src"
    source.mkdir(exist_ok=True)
    (source / "train.py").write_text(script)
    for name, text in modules.items():
        (source / f"{name}.py").write_text(text)
    checked = check_mapping(job(hyperparameters), folder, environ={})
    return [one for one in checked.diagnostics if one.code in CODES]


NAMES = ["lr", "learning_rate", "learning-rate", "b", "batch", "batch-size", "opt", "x"]
VALUES = st.sampled_from([1, 2.0, 0.1, "sgd", "adam", "7", True, False, None, [1, 2], {"a": 1}, "", "a b", 1e-5])
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
        "place": st.sampled_from(["parser", "group", "helper"]),
    },
)


def script_of(arguments: list[dict[str, Any]], known: bool, abbreviations: bool) -> str:
    lines = ["import argparse", "", "def helper(target):", "    pass"]
    calls: dict[str, list[str]] = {"parser": [], "group": [], "helper": []}
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
    lines += ["    helper(parser)", f"    parser.{'parse_known_args' if known else 'parse_args'}()", ""]
    return "\n".join([*lines, "if __name__ == '__main__':", "    main()", ""])


def is_refused(script: str, hyperparameters: Mapping[str, Any]) -> bool | None:
    """Whether the script ends at its command line; None where it cannot even make its parser."""
    argv = sys.argv
    sys.argv = ["train.py", *script_arguments(hyperparameters)]
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(script, "train.py", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code not in (None, 0)
    except (TypeError, ValueError, AttributeError, argparse.ArgumentError):
        return None
    finally:
        sys.argv = argv
    return False


@examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arguments=st.lists(ARGUMENT, max_size=4),
    hyperparameters=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
    known=st.booleans(),
    abbreviations=st.booleans(),
)
def test_what_argparse_accepts_is_never_reported(
    tmp_path: Path, arguments: list[dict[str, Any]], hyperparameters: dict[str, Any], known: bool, abbreviations: bool
) -> None:
    script = script_of(arguments, known, abbreviations)
    if is_refused(script, hyperparameters) is False:
        assert found(tmp_path, script, hyperparameters) == [], script


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
        ({"optimizer": "adm"}, "SMDP434", 'takes sgd, adam for --optimizer, not "adm"'),
        ({"layers": 5}, "SMDP434", 'takes 1, 2, 3, 4 for --layers, not "5"'),
        ({"amp": True}, "SMDP435", "declares --amp as a flag"),
        ({"betas": 0.9}, "SMDP435", "wants 2 values for --betas"),
    ],
)
def test_argparse_refuses_it_and_so_does_validate(tmp_path: Path, given_: dict[str, Any], code: str, said: str) -> None:
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


def test_a_required_option_and_a_positional_argument_that_nobody_gives_are_reported(tmp_path: Path) -> None:
    script = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\n"
        "p.add_argument('--lr', required=True)\np.parse_args()\n"
    )
    assert [one.message for one in found(tmp_path, script, {})] == [
        "line 3 of train.py requires the positional argument data; SageMaker passes options",
        "line 4 of train.py requires --lr, which the job does not give",
    ]
    assert [one.code for one in found(tmp_path, script.replace("'data'", "'--data'"), {"lr": 1})] == []


def test_a_misspelt_required_option_is_one_mistake(tmp_path: Path) -> None:
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
def test_unknown_names_are_left_alone_where_the_options_cannot_be_known(tmp_path: Path, rest: str) -> None:
    script = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n{rest}\n"
    assert found(tmp_path, script, {"depth": 3}) == []


def test_a_module_that_cannot_be_read_leaves_unknown_names_alone(tmp_path: Path) -> None:
    script = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "try:\n    import more\nexcept Exception:\n    pass\nparser.parse_args()\n"
    )
    assert found(tmp_path, script, {"depth": 3}, more="def add(:\n") == []


def test_the_parser_of_a_module_that_is_not_run_is_left_alone(tmp_path: Path) -> None:
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
def test_click_refuses_it_and_so_does_validate(tmp_path: Path, given_: dict[str, Any], code: str | None) -> None:
    assert is_refused(CLICK, given_) is (code is not None)
    assert [one.code for one in found(tmp_path, CLICK, given_)] == ([code] if code else [])


def test_a_click_command_with_decorators_of_others_leaves_unknown_names_alone(tmp_path: Path) -> None:
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


def test_a_package_that_may_have_absl_flags_leaves_unknown_names_alone(tmp_path: Path) -> None:
    assert found(tmp_path, f"import official\n{ABSL}", {"epoch": 3, "data": "x"}) == []


def test_a_flag_of_absl_takes_no_value(tmp_path: Path) -> None:
    (one,) = found(tmp_path, ABSL, {"amp": False, "data": "x"})
    assert "absl does not read it, and the flag is on" in one.message


# Command lines in several places

BUILDER = """\
import argparse

SCHEDULERS = {"cosine": "CosineAnnealingLR", "constant": "ConstantLR"}


def build_parser():
    parser = argparse.ArgumentParser()
    group = parser.add_argument_group("optimizer")
    group.add_argument("--per-gpu-batch", type=int, default=32)
    group.add_argument("--scheduler", choices=sorted(SCHEDULERS), default="constant")
    parser.add_argument("--smoothing", type=float, required=True)
    return parser
"""


@pytest.mark.parametrize(
    "entry",
    [
        "from builder import build_parser\narguments = build_parser().parse_args()\n",
        "from builder import build_parser\nparser = build_parser()\narguments = parser.parse_args()\n",
        "import builder\n\n\ndef main(argv=None):\n    print(builder.build_parser().parse_args(argv))\n\n\nmain()\n",
    ],
)
@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"smoothing": 0.1, "per-gpu-batch": 64, "scheduler": "cosine"}, None),
        ({"smoothing": 0.1, "per_gpu_batch": 64}, "SMDP432"),
        ({"smoothing": 0.1, "per-gpu-batch": "many"}, "SMDP433"),
        ({"smoothing": 0.1, "scheduler": "linear"}, "SMDP434"),
        ({"scheduler": "cosine"}, "SMDP436"),
    ],
)
def test_a_parser_that_a_module_makes_is_read(
    tmp_path: Path, entry: str, given_: dict[str, Any], code: str | None
) -> None:
    reported = found(tmp_path, entry, given_, builder=BUILDER)
    assert [one.code for one in reported] == ([code] if code else [])


@pytest.mark.parametrize(
    "declared",
    [
        'def flag(parser, name, text):\n    parser.add_argument(name, action="store_true", help=text)\n\n\n'
        'parser = argparse.ArgumentParser()\nflag(parser, "--exact", "slow")\nflag(parser, "--fast", "not so slow")\n',
        'parser = argparse.ArgumentParser()\nfor one in ("--exact", "--fast"):\n'
        '    parser.add_argument(one, action="store_true")\n',
    ],
)
def test_the_name_of_an_option_may_come_from_a_call_or_a_loop(tmp_path: Path, declared: str) -> None:
    script = f"import argparse\n\n{declared}parser.parse_args()\n"
    assert [one.code for one in found(tmp_path, script, {"exact": True})] == ["SMDP435"]
    closed = "for one in" in declared  # a helper may be called from elsewhere
    assert [one.code for one in found(tmp_path, script, {"other": 1})] == (["SMDP432"] if closed else [])


SHARED = """\
import click


def common(function):
    function = click.option("--seed", default=7)(function)
    return click.option("--batch-size", type=int, default=32)(function)


def optimizer(function):
    for option in [click.option("--epochs", type=int), click.option("--rate", type=float)]:
        function = option(function)
    return function
"""
COMMAND = """\
import click

from shared import common, optimizer


@click.command(context_settings={"show_default": True})
@common
@optimizer
@click.option("--clip", type=float, default=1.0)
def main(**options):
    print(options)


main()
"""


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"seed": 1, "batch-size": 8, "epochs": 2, "rate": 0.1, "clip": 2.0}, None),
        ({"dropout": 0.1}, "SMDP432"),
        ({"epochs": "many"}, "SMDP433"),
    ],
)
def test_options_of_decorators_of_ones_own_are_read(tmp_path: Path, given_: dict[str, Any], code: str | None) -> None:
    assert [one.code for one in found(tmp_path, COMMAND, given_, shared=SHARED)] == ([code] if code else [])
    lenient = COMMAND.replace("show_default", "ignore_unknown_options")
    reported = found(tmp_path, lenient, given_, shared=SHARED)
    assert [one.code for one in reported] == ([code] if code == "SMDP433" else [])


def test_flags_of_absl_that_a_module_defines_are_read(tmp_path: Path) -> None:
    module = "from absl import flags\n\nFLAGS = flags.FLAGS\n\n\ndef define():\n"
    module += '    flags.DEFINE_integer("batch_size", 512, "")\n'
    script = "from absl import app\n\nfrom team import FLAGS, define\n\ndefine()\n\n\n"
    script += "def main(_):\n    print(FLAGS.batch_size)\n\n\napp.run(main)\n"
    assert found(tmp_path, script, {"batch_size": 1000}, team=module) == []
    assert [one.code for one in found(tmp_path, script, {"batch_size": 1e3}, team=module)] == ["SMDP433"]
    assert [one.code for one in found(tmp_path, script, {"batchsize": 7}, team=module)] == ["SMDP432"]


ONE_OF = "import argparse\n{before}\nparser = argparse.ArgumentParser()\n"
ONE_OF += 'parser.add_argument("--model", choices={choices})\n{after}\nparser.parse_args()\n'


@pytest.mark.parametrize(
    ("before", "choices"),
    [
        ('NAMES = ["a"]\nNAMES += ["b"]', "NAMES"),
        ('NAMES = ["a"]\nNAMES.append("b")', "NAMES"),
        ('NAMES = {"a": 1}\nNAMES["b"] = 2', "NAMES"),
        ('NAMES = {"a": 1}\nNAMES.update(b=2)', "sorted(NAMES)"),
        ('NAMES = {"a": 1}\nfill(NAMES)', "list(NAMES)"),
        ('NAMES = {"a": 1}\n\n\n@register\ndef b():\n    pass\n', "NAMES.keys()"),
        ('NAMES = ["a"]\nif True:\n    NAMES = ["a", "b"]', "NAMES"),
        ('NAMES = ["a"]\n\n\ndef fill():\n    global NAMES\n    NAMES = ["a", "b"]\n\n\nfill()', "NAMES"),
    ],
)
def test_a_name_that_may_change_gives_no_choices(tmp_path: Path, before: str, choices: str) -> None:
    assert found(tmp_path, ONE_OF.format(before=before, choices=choices, after=""), {"model": "b"}) == []
    kept = ONE_OF.format(before=before.split("\n", maxsplit=1)[0], choices=choices, after="")
    assert [one.code for one in found(tmp_path, kept, {"model": "b"})] == ["SMDP434"]


OWN_CLI = """\
import argparse


def load(path):
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw", required=True)
    print(parser.parse_args())


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    "script",
    [
        "import json, os\nimport prepare\n\n\ndef main():\n    print(json.loads(os.environ['SM_HPS']))\n\n\nmain()\n",
        "from prepare import load\nprint(load('x'))\n",
    ],
)
def test_the_command_line_of_a_module_that_is_not_asked_is_left_alone(tmp_path: Path, script: str) -> None:
    assert found(tmp_path, script, {"epochs": 3}, prepare=OWN_CLI) == []
    asked = "import prepare\n\nprepare.main()\n"
    assert [one.code for one in found(tmp_path, asked, {"epochs": 3}, prepare=OWN_CLI)] == ["SMDP432", "SMDP436"]


@pytest.mark.parametrize(
    "rest",
    [
        "parser.add_argument('--one', required=True).required = False\n",
        "class Job:\n    def __init__(self):\n        self.parser = argparse.ArgumentParser()\n"
        "        more([self.parser])\n",
        "class Job(Base):\n    def __init__(self):\n        self.parser = argparse.ArgumentParser()\n",
    ],
)
def test_a_parser_that_others_may_change_leaves_unknown_names_alone(tmp_path: Path, rest: str) -> None:
    script = f"import argparse\n\nfrom library import Base, more\n\nparser = argparse.ArgumentParser()\n{rest}"
    reads = "parser.parse_args()\n" if "class" not in rest else "Job().parser.parse_args()\n"
    reported = found(tmp_path, script + reads, {"epochs": 3} if "class" in rest else {})
    assert reported == []


@pytest.mark.parametrize(("spelling", "name"), [("--d", "d"), ("-net", "net")])
def test_a_spelling_that_sagemaker_does_not_pass_is_named(tmp_path: Path, spelling: str, name: str) -> None:
    script = (
        f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('{spelling}')\nparser.parse_args()\n"
    )
    (one,) = found(tmp_path, script, {name: "1"})
    passed = f"-{name}" if len(name) == 1 else f"--{name}"
    assert one.help == f"add the spelling {passed} in line 3 of train.py, which has {spelling} alone"


def test_flags_of_absl_itself_are_known(tmp_path: Path) -> None:
    script = "from absl import app, flags\n\nflags.DEFINE_enum('opt', 'sgd', ['sgd'], '', case_sensitive=False)\n"
    script += "flags.DEFINE_integer('size', 1, '', short_name='s')\n\n\ndef main(_):\n    pass\n\n\napp.run(main)\n"
    assert found(tmp_path, script, {"verbosity": 1, "log_dir": "/tmp", "opt": "SGD", "s": "0x10"}) == []
