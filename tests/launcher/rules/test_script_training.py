"""The rules about process groups, backends, frameworks and channels of the script (SMDP440 to SMDP444)."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.diagnostics import Severity
from tests.launcher.rules.scripts import (
    ALONE,
    AWS,
    EXCHANGE,
    INIT,
    KERAS,
    LOOP,
    SDP,
    SINGLE,
    SOUND,
    TENSORFLOW,
    UNWRAPPED,
    codes,
    only,
    reported,
    sound,
)


def test_correct_script_gives_no_diagnostic(tmp_path: Path) -> None:
    assert reported(tmp_path, SOUND) == []


def test_diagnostic_points_to_line_of_script(tmp_path: Path) -> None:
    one = only(reported(tmp_path, sound((INIT, 'dist.init_process_group(\n    backend="nccl")  # here\n'))))
    assert (one.code, one.severity) == ("SMDP441", Severity.WARNING)
    assert one.span is not None
    assert (Path(one.span.file).name, one.span.line, one.span.column) == ("train.py", 13, 1)
    assert one.text == one.span.source == "dist.init_process_group("


def test_columns_count_characters(tmp_path: Path) -> None:
    one = only(reported(tmp_path, sound((INIT, 'größe = "ß"; dist.init_process_group("nccl")\n'))))
    assert one.text == 'dist.init_process_group("nccl")'


# 440: a process group, and something that averages


@pytest.mark.parametrize(
    "script",
    [
        SINGLE.format(imports="", more=""),
        SINGLE.format(imports="import numpy as np", more="torch.save(model.state_dict(), '/opt/ml/model/model.pt')"),
        sound(*UNWRAPPED),
        sound(*UNWRAPPED, *ALONE),
    ],
    ids=["plain", "with a save", "no wrapper", "no group"],
)
def test_separate_models_are_reported(tmp_path: Path, script: str) -> None:
    one = only(reported(tmp_path, script))
    assert one.code == "SMDP440"
    assert "16 workers" in one.message
    assert one.text == "loss.backward()"


def test_separate_models_in_tensorflow_are_reported(tmp_path: Path) -> None:
    script = KERAS.format(before="", optimizer='"sgd"', after="")
    one = only(reported(tmp_path, script, TENSORFLOW))
    assert (one.code, one.span and one.span.line) == ("SMDP440", 7)
    without_optimizer = KERAS.format(before=SDP, optimizer='"sgd"', after="")
    assert "does not average" in only(reported(tmp_path, without_optimizer, TENSORFLOW)).message


@pytest.mark.parametrize(
    "script",
    [
        SINGLE.format(imports="import pytorch_lightning as pl", more=""),
        SINGLE.format(imports="from accelerate import Accelerator", more=""),
        SINGLE.format(imports="import some_package", more=""),
        SINGLE.format(imports="from transformers import Trainer", more=""),
        SINGLE.format(imports="from .missing import start", more=""),
        SINGLE.format(imports="import horovod.torch as hvd", more=""),
        SINGLE.format(imports="", more="exec(open('more.py').read())"),
        SINGLE.format(imports="import subprocess", more="subprocess.run(['torchrun', 'real.py'])"),
        SINGLE.format(imports="import importlib", more="importlib.import_module('start').main()"),
        "import torch\nmodel = torch.nn.Linear(1, 1)\nprint(model(torch.ones(1, 1)))\n",
        "print('trained')\n",
        sound(*UNWRAPPED, ("optimizer.step()", "exchange(model)"), (LOOP, EXCHANGE + LOOP)),
    ],
)
def test_script_that_may_average_gradients_is_accepted(tmp_path: Path, script: str) -> None:
    assert "SMDP440" not in codes(reported(tmp_path, script))


def test_process_group_and_wrapper_in_modules_count(tmp_path: Path) -> None:
    script = SINGLE.format(imports="from utils.dist import start, wrap", more="")
    start = """\
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        def start():
            dist.init_process_group("smddp")

        def wrap(model):
            return DistributedDataParallel(model)
        """
    assert reported(tmp_path, script, modules={"utils/dist.py": start}) == []


def test_single_worker_is_accepted(tmp_path: Path) -> None:
    one_gpu = (
        ("ml.p4d.24xlarge", "ml.g5.xlarge"),
        ("instance_count: 2", "instance_count: 1"),
        ("engine: native", "engine: native\npolicy: extended"),
    )
    assert "SMDP440" not in codes(reported(tmp_path, SINGLE.format(imports="", more=""), one_gpu))


def test_unreadable_module_disables_dependent_rules(tmp_path: Path) -> None:
    script = SINGLE.format(imports="import helper", more="")
    assert "SMDP440" not in codes(reported(tmp_path, script, modules={"helper.py": "def broken(:\n"}))


# 441: the engine's backend


OPTION = 'parser.add_argument("--dist-backend", {}default="{}")\nargs = parser.parse_args()\n'


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        ('dist.init_process_group("nccl")\n', "nccl"),
        ('dist.init_process_group(backend="gloo", init_method="env://")\n', "gloo"),
        ('dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")\n', "gloo or nccl"),
        ('backend = "mpi"\ndist.init_process_group(backend)\n', "mpi"),
        ("dist.init_process_group()\n", "names no backend"),
    ],
)
def test_other_backend_is_reported(tmp_path: Path, start: str, shown: str) -> None:
    one = only(reported(tmp_path, sound((INIT, start))))
    assert one.code == "SMDP441"
    assert shown in one.message


def test_backend_is_read_from_argument(tmp_path: Path) -> None:
    start = (INIT, "dist.init_process_group(args.dist_backend)\n")
    script = sound(("args = parser.parse_args()\n", OPTION.format("", "nccl")), start)
    one = only(reported(tmp_path, script))
    assert (one.code, one.span and one.span.line) == ("SMDP441", 12)
    overridden = (("hyperparameters: {epochs: 2}", "hyperparameters: {epochs: 2, dist-backend: smddp}"),)
    assert reported(tmp_path, script, overridden) == []


@pytest.mark.parametrize(
    ("choices", "edited"), [("", True), ('choices=["gloo", "smddp"], ', True), ('choices=["gloo"], ', False)]
)
def test_backend_hyperparameter_is_replaced_if_script_accepts_smddp(tmp_path: Path, choices: str, edited: bool) -> None:
    start = (INIT, "dist.init_process_group(args.dist_backend)\n")
    script = sound(("args = parser.parse_args()\n", OPTION.format(choices, "smddp")), start)
    job = (("hyperparameters: {epochs: 2}", "hyperparameters: {epochs: 2, dist-backend: gloo}"),)
    one = only(reported(tmp_path, script, job))
    assert (one.code, one.text) == ("SMDP441", "gloo")
    assert [each.text for each in one.edits] == (["smddp"] if edited else [])


@pytest.mark.parametrize(
    "start",
    [
        'dist.init_process_group("smddp" if torch.cuda.is_available() else "gloo")\n',
        'dist.init_process_group(os.environ["BACKEND"])\n',
        'if args.epochs > 3:\n    dist.init_process_group("smddp")\nelse:\n    dist.init_process_group("gloo")\n',
        'dist.init_process_group("cpu:gloo,cuda:smddp")\n',
        "dist.init_process_group(args.dist_backend)\n",
        "def start(backend):\n    dist.init_process_group(backend)\n\n\nstart(os.environ['BACKEND'])\n",
    ],
)
def test_backend_that_may_be_smddp_is_accepted(tmp_path: Path, start: str) -> None:
    assert reported(tmp_path, sound((INIT, start))) == []


def test_horovod_and_strategies_are_reported_once(tmp_path: Path) -> None:
    horovod = KERAS.format(before="import horovod.keras as hvd\nhvd.init()\nhvd.init()", optimizer='"sgd"', after="")
    assert codes(reported(tmp_path, horovod, TENSORFLOW)) == ["SMDP441"]
    strategy = KERAS.format(before="s = tf.distribute.MultiWorkerMirroredStrategy()", optimizer='"sgd"', after="")
    assert "MultiWorkerMirroredStrategy" in only(reported(tmp_path, strategy, TENSORFLOW)).message


def test_strategy_chosen_by_argument_is_accepted(tmp_path: Path) -> None:
    chosen = "import sys\nif sys.argv[1:]:\n    s = tf.distribute.MirroredStrategy()"
    assert codes(reported(tmp_path, KERAS.format(before=chosen, optimizer='"sgd"', after=""), TENSORFLOW)) == []


def test_deepspeed_initialisation_is_reported(tmp_path: Path) -> None:
    script = "import deepspeed\nimport torch\n\ndeepspeed.init_distributed({})\n"
    assert "dist_backend" in only(reported(tmp_path, script.format(""))).help
    assert reported(tmp_path, script.format('dist_backend="smddp"')) == []
    assert reported(tmp_path, script.format("**settings")) == []


# 442: the import that registers the backend


def test_smddp_without_import_is_error_with_aws_library(tmp_path: Path) -> None:
    one = only(reported(tmp_path, SOUND, AWS))
    assert (one.code, one.severity, one.text) == ("SMDP442", Severity.ERROR, INIT.strip())
    locally = reported(tmp_path, SOUND, AWS, local=LocalRequest())
    assert [(each.code, each.severity) for each in locally] == [("SMDP442", Severity.WARNING)]


@pytest.mark.parametrize(
    ("script", "modules"),
    [
        ("import smdistributed.dataparallel.torch.torch_smddp\n" + SOUND, {}),
        ("from smdistributed.dataparallel.torch import torch_smddp\n" + SOUND, {}),
        ("import helper\n" + SOUND, {"helper.py": "import smdistributed.dataparallel.torch.torch_smddp\n"}),
        ("import some_package\n" + SOUND, {}),
        ("__import__('smdistributed.dataparallel.torch.torch_smddp')\n" + SOUND, {}),
    ],
)
def test_registered_smddp_is_accepted(tmp_path: Path, script: str, modules: dict[str, str]) -> None:
    assert reported(tmp_path, script, AWS, modules) == []


# 443: the framework


def test_script_for_other_framework_is_reported(tmp_path: Path) -> None:
    tensorflow = "import tensorflow as tf\nprint(tf)\n"
    assert [(one.code, one.severity) for one in reported(tmp_path, tensorflow, AWS)] == [("SMDP443", Severity.ERROR)]
    assert [(one.code, one.severity) for one in reported(tmp_path, tensorflow)] == [("SMDP443", Severity.WARNING)]
    assert codes(reported(tmp_path, SOUND, TENSORFLOW)) == ["SMDP443"]
    within = "def export():\n    import tensorflow\n    return tensorflow\n"
    assert [(one.code, one.severity) for one in reported(tmp_path, within, AWS)] == [("SMDP443", Severity.WARNING)]


@pytest.mark.parametrize(
    "script",
    [
        "import tensorflow as tf\nimport torch\nprint(tf, torch)\n",
        "import keras\nprint(keras)\n",
        "import tensorboard\n",
    ],
)
def test_script_for_both_or_no_framework_is_accepted(tmp_path: Path, script: str) -> None:
    assert reported(tmp_path, script, AWS) == []


def test_framework_in_requirements_is_accepted(tmp_path: Path) -> None:
    modules = {"requirements.txt": "tensorflow==2.11.1\n"}
    assert reported(tmp_path, "import tensorflow as tf\nprint(tf)\n", AWS, modules) == []


# 444: channels

TRAIN = 'train = os.environ["SM_CHANNEL_TRAIN"]\n'


@pytest.mark.parametrize(
    ("line", "help_"),
    [
        ('data = os.environ["SM_CHANNEL_TRAINING"]\n', "write SM_CHANNEL_TRAIN in"),
        ('data = os.environ.get("SM_CHANNEL_TRAINING", "data")\n', "write SM_CHANNEL_TRAIN in"),
        ('data = os.getenv("SM_CHANNEL_TRIAN")\n', "write SM_CHANNEL_TRAIN in"),
        ('data = "/opt/ml/input/data/training/images"\n', "write /opt/ml/input/data/train in"),
        ('train = os.environ["SM_CHANNEL_TRAIN"]\ndata = os.environ["SM_CHANNEL_VALIDATION"]\n', "validation"),
    ],
)
def test_missing_channel_is_reported(tmp_path: Path, line: str, help_: str) -> None:
    one = only(reported(tmp_path, "import os\n" + line))
    assert one.code == "SMDP444"
    assert help_ in one.help


@pytest.mark.parametrize(
    "script",
    [
        'train = os.environ["SM_CHANNEL_TRAIN"]\ntest = os.environ.get("SM_CHANNEL_TEST")\n',
        'train = "/opt/ml/input/data/train"\ntest = "/opt/ml/input/data/test"\n',
        'root = "/opt/ml/input/data"\ntrain = os.environ.get("SM_CHANNEL_TRAINING")\n',
        TRAIN + 'if "SM_CHANNEL_TEST" in os.environ:\n    test = os.environ["SM_CHANNEL_TEST"]\n',
        TRAIN + 'try:\n    test = os.environ["SM_CHANNEL_TEST"]\nexcept KeyError:\n    test = None\n',
        'names = os.environ["SM_CHANNELS"]\ntrain = os.environ.get("SM_CHANNEL_TRAINING")\n',
        '"""reads SM_CHANNEL_OTHER"""\n',
    ],
)
def test_optional_channel_is_accepted(tmp_path: Path, script: str) -> None:
    assert reported(tmp_path, f"import os\n{script}") == []


def test_channel_with_option_set_by_job_is_accepted(tmp_path: Path) -> None:
    script = (
        "import argparse, os\nparser = argparse.ArgumentParser()\n"
        'parser.add_argument("--epochs", type=int)\n'
        'parser.add_argument("--data-dir", default=os.environ.get("SM_CHANNEL_TRAINING"))\n'
    )
    assert codes(reported(tmp_path, script)) == ["SMDP444"]
    given = (("{epochs: 2}", "{epochs: 2, data-dir: /opt/ml/input/data/train}"),)
    assert reported(tmp_path, script, given) == []


# 440 and metrics


@pytest.mark.parametrize(
    ("exchange", "is_reported"),
    [
        ("def evaluate(model):\n    right = torch.zeros(2)\n    dist.all_reduce(right)\n\n\n", True),
        ("def evaluate(model):\n    values = torch.zeros(2)\n    dist.all_reduce(values)\n\n\n", True),
        ("def finish(loss):\n    dist.reduce(loss.detach(), 0)\n\n\n", True),
        ("def finish(values):\n    dist.all_reduce(values)\n\n\n", False),
        ("def evaluate(model):\n    for one in model.parameters():\n        dist.all_reduce(one.grad)\n\n\n", False),
        ("def finish(values, sum_of=dist.all_reduce):\n    sum_of(values)\n\n\n", False),
        ("from torch.distributed import all_reduce as total\n\n\n", False),
        ("def finish(loss):\n    dist.broadcast(loss, 0)\n\n\n", False),
    ],
)
def test_sum_of_metric_does_not_count_as_gradient_average(tmp_path: Path, exchange: str, is_reported: bool) -> None:
    script = sound(*UNWRAPPED, ("rank, world_size", f"{exchange}rank, world_size"))
    assert codes(reported(tmp_path, script)) == (["SMDP440"] if is_reported else [])
