"""Values in the job file that init writes: read back unchanged, quoted where YAML readers disagree."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smdp_launch.draft.draft import job_name, make_draft
from smdp_launch.draft.jobfile import job_file
from smdp_launch.jobfile.yaml.text import comment, key, to_yaml
from smdp_launch.request.hyperparameters import script_arguments
from smdp_launch.source.commandline.options import is_taken_for_an_option
from smdp_launch.source.scan import scan_source
from tests.support.jobs.init import load, make

plain_text = st.text() | st.sampled_from(
    ["on", "No", "~", "null", "1e3", "0x1", "1_0", "2.10", "- a", "a: b", "a #b", "", " a", ".inf"]
)
json_values = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | plain_text,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(plain_text, one, max_size=3),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    """Whether both are equal in value and type at every level."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def unescaped(value: Any) -> Any:
    """The value as a job file reads it: ``$${`` stands for ``${`` in values, not in keys."""
    if isinstance(value, str):
        return value.replace("$${", "${")
    if isinstance(value, list):
        return [unescaped(one) for one in value]
    return {name: unescaped(one) for name, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("version", [(1, 1), (1, 2)], ids=str)
@given(value=json_values)
def test_written_value_is_read_back_unchanged(version: tuple[int, int], value: Any) -> None:
    text = to_yaml(value)
    assert "\n" not in text
    assert same(unescaped(load(f"a: {text} # b\n", version)["a"]), value)


@pytest.mark.parametrize(
    "word", ["on", "No", "y", "null", "~", "True", "1:20", "1e3", "012", "2.10", "=", "<<", "2001-01-01"]
)
def test_ambiguous_yaml_words_are_quoted(word: str) -> None:
    assert to_yaml(word) == f'"{word}"'
    assert load(f"{key(word)}: {to_yaml(word)}\n", (1, 1)) == load(f"{key(word)}: {to_yaml(word)}\n") == {word: word}


@given(plain_text)
def test_written_keys_and_comments_are_on_one_line(text: str) -> None:
    document = f"{key(text)}: 1 # {comment(text)}\nb b: 2\n"
    assert load(document) == {text: 1, "b b": 2}


@example({"a": {"SMDP_0": False}})
@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.-]{0,12}", fullmatch=True), json_values, max_size=6))
def test_script_defaults_are_read_back_from_the_job_file_unchanged(defaults: dict[str, Any]) -> None:
    lines = [f"parser.add_argument('--{name}', type=convert, default={value!r})" for name, value in defaults.items()]
    with tempfile.TemporaryDirectory() as name:
        folder = make(Path(name), {})
        (folder / "train.py").write_text("import torch\n" + "\n".join(lines) + "\n", encoding="utf-8")
        draft = make_draft(scan_source(folder), "train.py", folder / "job.yaml", "native", None)
    hyperparameters = load(job_file(draft))["script"].get("hyperparameters", {})
    # argparse takes a value that begins with a dash for an option, so it is commented out.
    texts = {name: script_arguments({name: value})[1] for name, value in defaults.items()}
    passed = {name: value for name, value in defaults.items() if not is_taken_for_an_option(texts[name])}
    assert same(unescaped(hyperparameters), passed)


@given(st.text(max_size=100))
def test_any_folder_name_gives_a_job_name(folder: str) -> None:
    name = job_name(folder)
    assert 1 <= len(name) <= 43
    assert job_name(name) == name
    assert not name.startswith("-")
    assert name.replace("-", "").isalnum()


def test_init_writes_values_in_the_form_that_the_script_reads(tmp_path: Path) -> None:
    folder = make(tmp_path, {})
    (folder / "train.py").write_text(
        "import argparse, ast, json, torch\np = argparse.ArgumentParser()\n"
        "p.add_argument('--config', type=json.loads, default={'a': True})\n"
        "p.add_argument('--sizes', type=json.loads, default=[1, 2])\n"
        "p.add_argument('--shape', type=ast.literal_eval, default={'a': True})\n"
        "p.add_argument('--bias', type=float, default=-1e-05)\n"
        "p.add_argument('--shift', type=float, default=-0.5)\np.parse_args()\n"
    )
    text = job_file(make_draft(scan_source(folder), "train.py", folder / "job.yaml", "native", None))
    assert load(text)["script"]["hyperparameters"] == {
        "config": '{"a": true}',
        "sizes": [1, 2],
        "shape": "{'a': True}",
        "shift": -0.5,
    }
    assert "# bias: -1.0e-05 # the script does not accept the form in which SageMaker passes it" in text


def test_comment_distinguishes_an_option_without_a_default_from_one_with_an_expression(tmp_path: Path) -> None:
    source = make(
        tmp_path / "src",
        {
            "train.py": "import argparse, torch\nparser = argparse.ArgumentParser()\n"
            'parser.add_argument("--model_dir")\nparser.add_argument("--resume", default=None)\n'
            'parser.add_argument("--workers", type=int, default=len(GPUS))\n'
            f'parser.add_argument("--words", nargs="+", default=["{"x" * 300}"])\n'
        },
    )
    draft = make_draft(scan_source(source), "train.py", tmp_path / "job.yaml", None, None)
    lines = [one.strip() for one in job_file(draft).splitlines() if one.startswith("    # ")][:4]
    none = "the script has no default; write a value to pass it"
    assert lines[:3] == [
        f"# model_dir: # {none}",
        f"# resume: # {none}",
        "# workers: # its default cannot be read from the script",
    ]
    assert f"# words: [{'x' * 198}… # takes several values" in lines[3]


def test_reason_for_another_version_names_the_command(tmp_path: Path) -> None:
    make(tmp_path / "src", {"train.py": "import torch\n", "requirements.txt": "torch==1.13.1\n"})
    draft = make_draft(scan_source(tmp_path / "src"), "train.py", tmp_path / "job.yaml", "native", None)
    reason = "requires torch 1.13.1, for which `smdp-launch image build` has no recipe"
    assert reason in job_file(draft)


SHELL = "#!/bin/bash\nset -e\n# python old.py\nexec python -u {} \\\n  --config conf/a.yaml {}\n"
OPTIONS = """import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--epochs", type=int, default=3)
parser.parse_args()
torch.distributed.init_process_group("nccl")
"""


@pytest.mark.parametrize(
    ("command", "passed", "hyperparameters", "rest"),
    [
        ("-m tiny.train", '"$@"', ["epochs"], ""),
        ("src/tiny/train.py", "$*", ["epochs"], ""),
        ("train.py", "", [], ', without "$@": init writes no hyperparameters'),
        ("/opt/ml/code/src/tiny/train.py", "${@}", ["epochs"], ""),
        ('"$(dirname $0)/src/tiny/train.py"', '"$@"', ["epochs"], ""),
        ("-W ignore $HERE/src/tiny/train.py", '"$@" | tee log', ["epochs"], ""),
    ],
)
def test_shell_script_is_followed_to_the_python_file_that_it_starts(
    tmp_path: Path, command: str, passed: str, hyperparameters: list[str], rest: str
) -> None:
    (tmp_path / "src" / "tiny").mkdir(parents=True)
    (tmp_path / "src" / "tiny" / "train.py").write_text(OPTIONS)
    (tmp_path / "train.sh").write_text(SHELL.format(command, passed))
    draft = make_draft(scan_source(tmp_path), "train.sh", tmp_path / "job.yaml", None, None)
    assert (draft.entry, draft.engine) == ("train.sh", "native")
    assert [one.name for one in draft.hyperparameters] == hyperparameters
    assert draft.notes == (
        f"train.sh is a shell script that starts src/tiny/train.py{rest}",
        "engine: native, because AWS's images start nccl only with a .py file, not with train.sh",
    )


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("python3.10 train.py", None),
        ("CUDA_VISIBLE_DEVICES=0 /opt/conda/bin/python train.py", None),
        ("cd /opt/ml/code && exec python train.py", None),
        ("torchrun --nproc_per_node 8 --standalone train.py", "torchrun"),
        ("python -m torch.distributed.launch --nproc_per_node=8 train.py", "torch.distributed.launch"),
        ("python -m torch.distributed.run -m train", "torch.distributed.run"),
        ("accelerate launch --num_processes 8 train.py", "accelerate launch"),
        ("deepspeed train.py", "deepspeed"),
    ],
)
def test_commands_that_start_python_are_followed(tmp_path: Path, command: str, launcher: str | None) -> None:
    (tmp_path / "train.py").write_text(OPTIONS)
    (tmp_path / "train").write_text(f'#!/usr/bin/env bash\npip install x.py\n{command} --config a "$@"\n')
    draft = make_draft(scan_source(tmp_path), "train", tmp_path / "job.yaml", None, None)
    assert [one.name for one in draft.hyperparameters] == ["epochs"]
    rest = f" with {launcher}, in each worker of the job: pass --entry train.py instead" if launcher else ""
    assert draft.notes[0] == f"train is a shell script that starts train.py{rest}"


@pytest.mark.parametrize("command", ["-m other.train", "$SCRIPT", "a.py\npython b.py"])
def test_shell_script_whose_python_file_is_unclear_is_not_parsed_as_python(tmp_path: Path, command: str) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(OPTIONS)
    (tmp_path / "train.sh").write_text(SHELL.format(command, '--data "$SM_CHANNEL_IMAGES"'))
    draft = make_draft(scan_source(tmp_path), "train.sh", tmp_path / "job.yaml", None, None)
    assert (draft.hyperparameters, draft.channels) == ((), ("images",))
    assert draft.notes == ("train.sh is a shell script: the Python code that it starts is not analyzed",)


def test_channels_of_a_file_with_settings_are_written(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").write_text(
        "x: ${oc.env:SM_CHANNEL_IMAGES,i} # SM_CHANNEL_OLD\ny: SM_CHANNEL_LABELS\n"
    )
    (tmp_path / "train.py").write_text("import torch\n")
    draft = make_draft(scan_source(tmp_path), "train.py", tmp_path / "job.yaml", None, None)
    assert draft.channels == ("images", "labels")
