"""Command lines that several functions and modules declare together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.launcher.source.command_lines import found

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
def test_parser_created_by_module_is_read(tmp_path: Path, entry: str, given_: dict[str, Any], code: str | None) -> None:
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
def test_option_name_from_call_or_loop_is_read(tmp_path: Path, declared: str) -> None:
    script = f"import argparse\n\n{declared}parser.parse_args()\n"
    assert [one.code for one in found(tmp_path, script, {"exact": True})] == ["SMDP435"]
    closed = "for one in" in declared  # other code may call a helper
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
def test_options_of_own_decorators_are_read(tmp_path: Path, given_: dict[str, Any], code: str | None) -> None:
    assert [one.code for one in found(tmp_path, COMMAND, given_, shared=SHARED)] == ([code] if code else [])
    lenient = COMMAND.replace("show_default", "ignore_unknown_options")
    reported = found(tmp_path, lenient, given_, shared=SHARED)
    assert [one.code for one in reported] == ([code] if code == "SMDP433" else [])


def test_absl_flags_of_module_are_read(tmp_path: Path) -> None:
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
def test_name_that_may_change_gives_no_choices(tmp_path: Path, before: str, choices: str) -> None:
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
def test_command_line_of_unused_module_is_ignored(tmp_path: Path, script: str) -> None:
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
def test_unknown_names_are_accepted_if_others_may_change_parser(tmp_path: Path, rest: str) -> None:
    script = f"import argparse\n\nfrom library import Base, more\n\nparser = argparse.ArgumentParser()\n{rest}"
    reads = "parser.parse_args()\n" if "class" not in rest else "Job().parser.parse_args()\n"
    reported = found(tmp_path, script + reads, {"epochs": 3} if "class" in rest else {})
    assert reported == []


@pytest.mark.parametrize(("spelling", "name"), [("--d", "d"), ("-net", "net")])
def test_spelling_that_sagemaker_does_not_pass_is_reported(tmp_path: Path, spelling: str, name: str) -> None:
    script = (
        f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('{spelling}')\nparser.parse_args()\n"
    )
    (one,) = found(tmp_path, script, {name: "1"})
    passed = f"-{name}" if len(name) == 1 else f"--{name}"
    assert one.help == f"add the spelling {passed} in line 3 of train.py, which has only {spelling}"


def test_absl_builtin_flags_are_accepted(tmp_path: Path) -> None:
    script = "from absl import app, flags\n\nflags.DEFINE_enum('opt', 'sgd', ['sgd'], '', case_sensitive=False)\n"
    script += "flags.DEFINE_integer('size', 1, '', short_name='s')\n\n\ndef main(_):\n    pass\n\n\napp.run(main)\n"
    assert found(tmp_path, script, {"verbosity": 1, "log_dir": "/tmp", "opt": "SGD", "s": "0x10"}) == []
