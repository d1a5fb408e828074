"""What init chooses for a script: its entry point, engine, version and options."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from smdp_launch.catalog.engines import Engine
from smdp_launch.draft.draft import make_draft
from smdp_launch.draft.entry import python_scripts, training_scripts
from smdp_launch.draft.jobfile import job_file
from smdp_launch.source.scan import scan_source
from smdp_launch.source.script.outputs import names_output_folder

PARSES = """import argparse
import torch
import val
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--local_rank", type=int, default=0)
    print(parser.parse_args(), val.run())
if __name__ == "__main__":
    main()
"""
VALIDATES = {
    "argparse": """import argparse
def run(): return 1
def parse_opt():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-det", type=int, default=300)
    return parser.parse_args()
if __name__ == "__main__":
    print(run(), parse_opt())
""",
    "click": """import click
def run(): return 1
@click.command()
@click.option("--max-det", default=300)
def convert(max_det): print(max_det)
if __name__ == "__main__":
    convert()
""",
}


@pytest.mark.parametrize("module", list(VALIDATES))
def test_options_of_a_module_that_is_only_imported_are_not_written(tmp_path: Path, module: str) -> None:
    (tmp_path / "train.py").write_text(PARSES)
    (tmp_path / "val.py").write_text(VALIDATES[module])
    draft = make_draft(scan_source(tmp_path), "train.py", tmp_path / "job.yaml", None, None)
    passed = {one.name: one.unfit for one in draft.hyperparameters}
    assert passed == {
        "epochs": None,
        "local_rank": "each process gets a value of its own, in the variable of this name in capital letters",
    }


@pytest.mark.parametrize(
    ("start", "engine"),
    [
        ('args.backend = "nccl"\ndist.init_process_group(backend=args.backend)', "nccl"),
        ('dist.init_process_group({"cuda": "nccl", "cpu": "gloo"}[kind])', "nccl"),
        ('dist.init_process_group(backend={"cuda": "nccl"}.get(kind, "gloo"))', "nccl"),
        ("dist.init_process_group('nccl' if cuda else 'gloo')", "nccl"),
        ("dist.init_process_group()", "nccl"),
        ("dist.init_process_group(args.backend)", "native"),
        ("args.backend = choose()\ndist.init_process_group(args.backend)", "native"),
        ('dist.init_process_group("smddp")', "native"),
    ],
)
def test_engine_is_that_of_the_process_group(tmp_path: Path, start: str, engine: str) -> None:
    (tmp_path / "train.py").write_text(f"import torch.distributed as dist\n{start}\n")
    draft = make_draft(scan_source(tmp_path), "train.py", tmp_path / "job.yaml", None, None)
    assert draft.engine == engine


@pytest.mark.parametrize(
    ("engine", "requires", "version"),
    [
        ("native", "torch>=2.0", "2.0.1"),
        ("native", "torch>=2.4,<2.6", "2.5.1"),
        ("nccl", "torch<2.5", "2.4.0"),
        ("nccl", "torch>=99", "2.8.0"),
    ],
)
def test_version_is_one_that_the_requirements_allow(
    tmp_path: Path, engine: Engine, requires: str, version: str
) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "requirements.txt").write_text(f"{requires}\n")
    draft = make_draft(scan_source(tmp_path), "train.py", tmp_path / "job.yaml", engine, None)
    assert draft.choice.build.version == version


def test_entry_may_import_the_framework_by_way_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("from engine import train\nif __name__ == '__main__':\n    train()\n")
    (tmp_path / "engine.py").write_text("import torch\ndef train(): pass\n")
    (tmp_path / "tool.py").write_text("import json\nif __name__ == '__main__':\n    print(json)\n")
    assert training_scripts(python_scripts(scan_source(tmp_path))) == [["main.py"]]


def test_job_file_does_not_count_as_a_configuration_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    tree = scan_source(tmp_path)
    draft = make_draft(tree, "train.py", tmp_path / "job.yaml", None, None)
    (tmp_path / "job.yaml").write_text(job_file(draft))
    assert not names_output_folder(scan_source(tmp_path))
    (tmp_path / "conf.yaml").write_text("out: /opt/ml/model\n")
    assert names_output_folder(scan_source(tmp_path))


def test_value_that_a_shell_changes_is_left_to_the_script(tmp_path: Path) -> None:
    script = """import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("--resume", default="")
p.add_argument("--key", default="model|module")
p.add_argument("--opt", default="adamw")
p.parse_args()
"""
    (tmp_path / "train.py").write_text(script)
    tree = scan_source(tmp_path)
    for engine, passed in (("nccl", ["opt"]), ("native", ["resume", "key", "opt"])):
        draft = make_draft(tree, "train.py", tmp_path / "job.yaml", cast("Engine", engine), None)
        assert [one.name for one in draft.hyperparameters if one.unfit is None] == passed


def test_folder_of_the_channel_is_passed_to_a_script_that_reads_no_channel(tmp_path: Path) -> None:
    script = """import argparse, torch
p = argparse.ArgumentParser()
p.add_argument("--data_path", default="/datasets01/imagenet/")
p.add_argument("--epochs", default=3, type=int)
torch.load(p.parse_args().data_path)
"""
    (tmp_path / "train.py").write_text(script)
    draft = make_draft(scan_source(tmp_path), "train.py", tmp_path / "job.yaml", None, None)
    assert {one.name: one.value for one in draft.hyperparameters} == {
        "data_path": "/opt/ml/input/data/train",
        "epochs": 3,
    }
    assert "channels: # pass the script the folder of each, /opt/ml/input/data/<name>\n" in job_file(draft)
    (tmp_path / "train.py").write_text(script + "import os\nos.environ['SM_CHANNEL_TRAIN']\n")
    draft = make_draft(scan_source(tmp_path), "train.py", tmp_path / "job.yaml", None, None)
    assert draft.hyperparameters[0].value == "/datasets01/imagenet/"
    assert "channels: # the script reads the path of each from SM_CHANNEL_<NAME>\n" in job_file(draft)


@pytest.mark.parametrize(
    ("line", "is_noted"),
    [
        ("os.environ['SM_CHANNEL_TRAIN']", True),
        ("os.environ['SM_CHANNEL_TRAIN']; open('data/hyp.yaml')", False),
        ("os.path.join('data', 'x')", False),
        ("print(os)", False),
    ],
)
def test_data_that_the_script_needs_in_the_source_is_not_to_be_ignored(
    tmp_path: Path, line: str, is_noted: bool
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a")
    (tmp_path / "train.py").write_text(f"import os, torch\n{line}\n")
    draft = make_draft(scan_source(tmp_path), "train.py", tmp_path / "job.yaml", None, None)
    assert any("list it in .smdpignore" in one for one in draft.notes) is is_noted
