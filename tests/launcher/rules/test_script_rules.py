"""What is reported about the script: each rule with scripts that have the mistake, and with sound ones near it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic, Severity
from tests.conftest import JOB, write_job

SOUND = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
dist.init_process_group("smddp")
rank, world_size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(torch.nn.Linear(10, 2).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train_data = ImageFolder(os.environ["SM_CHANNEL_TRAIN"])
sampler = DistributedSampler(train_data)
loader = DataLoader(train_data, batch_size=8, sampler=sampler)
for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for batch, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(batch.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if rank == 0:
    torch.save(model.module.state_dict(), os.environ["SM_MODEL_DIR"] + "/model.pt")
"""
INIT = 'dist.init_process_group("smddp")\n'
WRAPPED = "DistributedDataParallel(torch.nn.Linear(10, 2).to(device))"
LOADER = "loader = DataLoader(train_data, batch_size=8, sampler=sampler)\n"
SAMPLER = "sampler = DistributedSampler(train_data)\n"
LOOP = "for epoch in range(args.epochs):\n"
SET_EPOCH = "    sampler.set_epoch(epoch)\n"
SAVE = 'if rank == 0:\n    torch.save(model.module.state_dict(), os.environ["SM_MODEL_DIR"] + "/model.pt")\n'
UNWRAPPED = (
    (WRAPPED, "torch.nn.Linear(10, 2).to(device)"),
    ("from torch.nn.parallel import DistributedDataParallel\n", ""),
    ("model.module", "model"),
)
ALONE = (
    ("import torch.distributed as dist\n", ""),
    (INIT, ""),
    ("rank, world_size = dist.get_rank(), dist.get_world_size()", "rank = 0"),
    (SAMPLER + LOADER, "loader = DataLoader(train_data)\n"),
    (SET_EPOCH, ""),
    (", DistributedSampler", ""),
)
EXCHANGE = """\
def exchange(model):
    for one in model.parameters():
        dist.all_reduce(one.grad)
    optimizer.step()


"""
SHUFFLED = "loader = DataLoader(train_data, shuffle=True)\n"
NATIVE_IMAGE = next(line for line in JOB.splitlines() if line.startswith("image:")) + "\n"
SINGLE = """\
import torch
{imports}
model = torch.nn.Linear(10, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    loss = model(torch.randn(8, 10).cuda()).sum()
    loss.backward()
    optimizer.step()
{more}
"""
KERAS = """\
import tensorflow as tf
{before}
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer={optimizer}, loss="mse")
model.fit(tf.data.Dataset.load("/opt/ml/input/data/train"))
{after}
"""
TENSORFLOW = (
    ('{name: pytorch, version: "2.0.1"}', '{name: tensorflow, version: "2.11.1"}'),
    (":2.0.1-cu118", ":2.11.1-cu118"),
)
AWS = (("engine: native", "engine: smdistributed"), (NATIVE_IMAGE, ""))
SDP = "import smdistributed.dataparallel.tensorflow as sdp\nsdp.init()"

Changes = tuple[tuple[str, str], ...]


def reported(
    folder: Path,
    script: str,
    job: Changes = (),
    modules: dict[str, str] | None = None,
    local: LocalRequest | None = None,
) -> list[Diagnostic]:
    text = changed(JOB, job)
    path = write_job(folder, text, script)
    for name, module in (modules or {}).items():
        (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "src" / name).write_text(dedent(module))
    return list(check_job(path, local, environ={}).diagnostics)


def changed(text: str, changes: Changes) -> str:
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text


def codes(found: list[Diagnostic]) -> list[str]:
    return [one.code for one in found]


def only(found: list[Diagnostic]) -> Diagnostic:
    assert len(found) == 1, found
    return found[0]


def sound(*changes: tuple[str, str]) -> str:
    return changed(SOUND, changes)


def test_a_sound_script_gives_no_diagnostic(tmp_path: Path) -> None:
    assert reported(tmp_path, SOUND) == []


def test_a_diagnostic_points_at_the_line_of_the_script(tmp_path: Path) -> None:
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
        SINGLE.format(imports="import numpy as np", more="torch.save(model.state_dict(), 'model.pt')"),
        sound(*UNWRAPPED),
        sound(*UNWRAPPED, *ALONE),
    ],
    ids=["plain", "with a save", "no wrapper", "no group"],
)
def test_separate_trainings_are_reported(tmp_path: Path, script: str) -> None:
    one = only(reported(tmp_path, script))
    assert one.code == "SMDP440"
    assert "16 workers" in one.message
    assert one.text == "loss.backward()"


def test_separate_trainings_of_tensorflow_are_reported(tmp_path: Path) -> None:
    script = KERAS.format(before="", optimizer='"sgd"', after="")
    one = only(reported(tmp_path, script, TENSORFLOW))
    assert (one.code, one.span and one.span.line) == ("SMDP440", 5)
    without_optimizer = KERAS.format(before=SDP, optimizer='"sgd"', after="")
    assert "nothing averages" in only(reported(tmp_path, without_optimizer, TENSORFLOW)).message


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
def test_what_may_train_together_is_not_called_separate(tmp_path: Path, script: str) -> None:
    assert "SMDP440" not in codes(reported(tmp_path, script))


def test_a_group_and_a_wrapper_in_modules_count(tmp_path: Path) -> None:
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


def test_one_worker_alone_is_not_separate(tmp_path: Path) -> None:
    one_gpu = (
        ("ml.p4d.24xlarge", "ml.g5.xlarge"),
        ("instance_count: 2", "instance_count: 1"),
        ("engine: native", "engine: native\npolicy: extended"),
    )
    assert "SMDP440" not in codes(reported(tmp_path, SINGLE.format(imports="", more=""), one_gpu))


def test_a_module_that_cannot_be_read_silences_what_depends_on_it(tmp_path: Path) -> None:
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
def test_another_backend_is_reported(tmp_path: Path, start: str, shown: str) -> None:
    one = only(reported(tmp_path, sound((INIT, start))))
    assert one.code == "SMDP441"
    assert shown in one.message


def test_a_backend_is_read_from_the_argument_that_gives_it(tmp_path: Path) -> None:
    start = (INIT, "dist.init_process_group(args.dist_backend)\n")
    script = sound(("args = parser.parse_args()\n", OPTION.format("", "nccl")), start)
    one = only(reported(tmp_path, script))
    assert (one.code, one.span and one.span.line) == ("SMDP441", 12)
    overridden = (("hyperparameters: {epochs: 2}", "hyperparameters: {epochs: 2, dist-backend: smddp}"),)
    assert reported(tmp_path, script, overridden) == []


@pytest.mark.parametrize(
    ("choices", "edited"), [("", True), ('choices=["gloo", "smddp"], ', True), ('choices=["gloo"], ', False)]
)
def test_a_backend_in_a_hyperparameter_is_replaced_where_the_script_takes_smddp(
    tmp_path: Path, choices: str, edited: bool
) -> None:
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
def test_a_backend_that_may_be_the_engines_is_accepted(tmp_path: Path, start: str) -> None:
    assert reported(tmp_path, sound((INIT, start))) == []


def test_horovod_and_strategies_are_reported_once(tmp_path: Path) -> None:
    horovod = KERAS.format(before="import horovod.keras as hvd\nhvd.init()\nhvd.init()", optimizer='"sgd"', after="")
    assert codes(reported(tmp_path, horovod, TENSORFLOW)) == ["SMDP441"]
    strategy = KERAS.format(before="s = tf.distribute.MultiWorkerMirroredStrategy()", optimizer='"sgd"', after="")
    assert "MultiWorkerMirroredStrategy" in only(reported(tmp_path, strategy, TENSORFLOW)).message


def test_a_strategy_that_an_argument_chooses_is_accepted(tmp_path: Path) -> None:
    chosen = "import sys\nif sys.argv[1:]:\n    s = tf.distribute.MirroredStrategy()"
    assert codes(reported(tmp_path, KERAS.format(before=chosen, optimizer='"sgd"', after=""), TENSORFLOW)) == []


def test_deepspeeds_own_start_is_reported(tmp_path: Path) -> None:
    script = "import deepspeed\nimport torch\n\ndeepspeed.init_distributed({})\n"
    assert "dist_backend" in only(reported(tmp_path, script.format(""))).help
    assert reported(tmp_path, script.format('dist_backend="smddp"')) == []
    assert reported(tmp_path, script.format("**settings")) == []


# 442: the import that registers the backend


def test_smddp_without_the_import_is_an_error_with_awss_library(tmp_path: Path) -> None:
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
def test_smddp_that_something_registers_is_accepted(tmp_path: Path, script: str, modules: dict[str, str]) -> None:
    assert reported(tmp_path, script, AWS, modules) == []


# 443: the framework


def test_a_script_of_the_other_framework_is_reported(tmp_path: Path) -> None:
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
def test_a_script_of_both_or_neither_framework_is_accepted(tmp_path: Path, script: str) -> None:
    assert reported(tmp_path, script, AWS) == []


def test_a_framework_that_is_required_is_accepted(tmp_path: Path) -> None:
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
def test_a_channel_that_the_job_lacks_is_reported(tmp_path: Path, line: str, help_: str) -> None:
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
def test_a_channel_that_the_script_can_do_without_is_accepted(tmp_path: Path, script: str) -> None:
    assert reported(tmp_path, f"import os\n{script}") == []


def test_a_channel_whose_option_the_job_gives_is_accepted(tmp_path: Path) -> None:
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
def test_the_sum_of_a_metric_averages_no_gradient(tmp_path: Path, exchange: str, is_reported: bool) -> None:
    script = sound(*UNWRAPPED, ("rank, world_size", f"{exchange}rank, world_size"))
    assert codes(reported(tmp_path, script)) == (["SMDP440"] if is_reported else [])


# 445: GPUs


@pytest.mark.parametrize(
    "device",
    ['torch.device("cpu")', '"cpu"'],
)
def test_a_script_that_stays_on_the_cpu_is_reported(tmp_path: Path, device: str) -> None:
    script = sound(('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', device))
    assert codes(reported(tmp_path, script)) == ["SMDP445"]


def test_a_rank_is_a_device(tmp_path: Path) -> None:
    number = ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', 'int(os.environ["LOCAL_RANK"])')
    assert reported(tmp_path, sound(number)) == []


def test_the_cpu_that_a_function_is_given_is_no_gpu(tmp_path: Path) -> None:
    device = ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', 'torch.device("cpu")')
    evaluate = "def evaluate(model, batch, device):\n    return model(batch.to(device))\n\n\n"
    script = sound(device, ("rank, world_size", f"{evaluate}rank, world_size"))
    assert codes(reported(tmp_path, script)) == ["SMDP445"]
    chosen = ('torch.device("cpu")', 'torch.device("cuda" if torch.cuda.is_available() else "cpu")')
    assert reported(tmp_path, changed(script, (chosen,))) == []


def test_asking_for_a_gpu_and_autocast_move_nothing(tmp_path: Path) -> None:
    asks = 'print(torch.cuda.is_available())\ntorch.cuda.manual_seed(1)\nscaler = torch.amp.GradScaler("cuda")\n'
    device = ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', '"cpu"')
    script = sound(
        device, ("rank, world_size", f"{asks}rank, world_size"), ("batch.to(device)", "batch.to(torch.float32)")
    )
    assert codes(reported(tmp_path, script)) == ["SMDP445"]


@pytest.mark.parametrize(
    "line",
    [
        'torch.set_default_device("cuda")\n',
        "torch.cuda.set_device(0)\n",
        "model.cuda()\n",
        "model = model.to(args.device)\n",
        'weights = torch.zeros(3, device=f"cuda:{rank}")\n',
        'device = "cuda" if torch.cuda.is_available() else "cpu"\n',
        "import pytorch_lightning\n",
    ],
)
def test_a_script_that_may_use_a_gpu_is_accepted(tmp_path: Path, line: str) -> None:
    script = sound(
        ('torch.device("cuda", int(os.environ["LOCAL_RANK"]))', '"cpu"'), ("optimizer = ", f"{line}optimizer = ")
    )
    assert reported(tmp_path, script) == []


def test_tensorflow_places_by_itself(tmp_path: Path) -> None:
    script = KERAS.format(before=SDP, optimizer="sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))", after="")
    assert reported(tmp_path, script, TENSORFLOW) == []


# 446: data


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(train_data, batch_size=8, shuffle=True)\n",
        "loader = DataLoader(train_data, 8, True)\n",
        "train_loader = loader = DataLoader(train_data, batch_size=8, sampler=None)\n",
        "loader = DataLoader(dataset=train_data, shuffle=True)\n",
    ],
)
def test_a_loader_of_all_the_data_is_reported(tmp_path: Path, loader: str) -> None:
    one = only(reported(tmp_path, sound((SAMPLER + LOADER, loader), (SET_EPOCH, ""))))
    assert (one.code, one.span and one.span.line) == ("SMDP446", 19)


def test_a_sampler_that_no_loader_takes_is_reported(tmp_path: Path) -> None:
    unused = (LOADER, "loader = DataLoader(train_data, batch_size=8, shuffle=True)\n")
    assert codes(reported(tmp_path, sound(unused))) == ["SMDP446"]


@pytest.mark.parametrize(
    "loader",
    [
        "loader = DataLoader(train_data, batch_sampler=MyBatches(train_data), num_workers=2)\n",
        "loader = DataLoader(train_data, shuffle=True, **settings)\n",
        "train_data = torch.utils.data.Subset(train_data, range(rank, 100, world_size))\n" + SHUFFLED,
        "train_data = train_data[rank::world_size]\nloader = DataLoader(train_data, shuffle=True)\n",
        "train_data = train_data.shard(world_size, rank)\nloader = DataLoader(train_data, shuffle=True)\n",
        "from datasets.distributed import split_dataset_by_node as split\ntrain_data = split(train_data, 0, 8)\n"
        + SHUFFLED,
        "class Stream(torch.utils.data.IterableDataset):\n    pass\n\n\nloader = DataLoader(Stream(train_data))\n",
        "import webdataset\nloader = DataLoader(train_data, shuffle=True)\n",
        "torch.manual_seed(17 + rank)\nloader = DataLoader(train_data, shuffle=True)\n",
        "loader = load(train_data)\nval_loader = DataLoader(val_data, shuffle=True)\n",
        "loader = load(train_data)\ntest_loader = DataLoader(train_data, batch_size=8)\n",
        "loader = DataLoader(MyData(train_data, rank), shuffle=True)\n",
        "train_data = [one for at, one in enumerate(train_data) if at % world_size == rank]\n" + SHUFFLED,
    ],
)
def test_data_that_is_divided_in_another_way_is_accepted(tmp_path: Path, loader: str) -> None:
    assert reported(tmp_path, sound((SAMPLER + LOADER, loader), (SET_EPOCH, ""))) == []


# 447: saves


@pytest.mark.parametrize(
    "save",
    [
        'torch.save(model.state_dict(), "/opt/ml/model/model.pt")\n',
        'torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))\n',
        'def save(path):\n    torch.save(model.state_dict(), path)\n\n\nsave("/opt/ml/model/model.pt")\n',
        'class Job:\n    def save(self):\n        torch.save(model, "model.pt")\n\n\nJob().save()\n',
        'with open("/opt/ml/model/model.pt", "wb") as file:\n    torch.save(model.state_dict(), file)\n',
        'if args.epochs > 3:\n    model.module.save_pretrained("/opt/ml/model")\n',
    ],
)
def test_a_save_by_every_rank_is_reported(tmp_path: Path, save: str) -> None:
    assert codes(reported(tmp_path, sound((SAVE, save)))) == ["SMDP447"]


@pytest.mark.parametrize(
    "save",
    [
        'if dist.get_rank() == 0:\n    torch.save(model, "model.pt")\n',
        'if args.epochs > 3 and not rank:\n    torch.save(model, "model.pt")\n',
        'def save():\n    if rank != 0:\n        return\n    torch.save(model, "model.pt")\n\n\nsave()\n',
        'def save():\n    torch.save(model, "model.pt")\n\n\nif int(os.environ["RANK"]) == 0:\n    save()\n',
        'def save():\n    torch.save(model, "model.pt")\n\n\ndef end():\n    save()\n\n\nif rank == 0:\n    end()\n',
        'torch.save(model, f"model-{rank}.pt")\n',
        'path = "/opt/ml/model/{}.pt".format(rank)\ntorch.save(model, path)\n',
        'first = dist.get_rank() == 0\nif first:\n    torch.save(model, "model.pt")\n',
        'def is_boss():\n    return dist.get_rank() == 0\n\n\nif is_boss():\n    torch.save(model, "model.pt")\n',
        'def save(last):\n    if last:\n        torch.save(model, "model.pt")\n\n\nsave(rank == 0)\n',
        '@rank_zero_only\ndef save():\n    torch.save(model, "model.pt")\n\n\nsave()\n',
        "import io\nbuffer = io.BytesIO()\ntorch.save(model, buffer)\n",
        'torch.save(model, "model.pt") if rank == 0 else None\n',
        'def never():\n    torch.save(model, "model.pt")\n',
        'first, size = dist.get_rank() == 0, dist.get_world_size()\nif first:\n    torch.save(model, "model.pt")\n',
        'me = dist.get_rank()\nzero = me == 0\nif zero:\n    torch.save(model, "model.pt")\n',
        'place = {"rank": dist.get_rank()}\nif place["rank"] == 0:\n    torch.save(model, "model.pt")\n',
        'if getattr(args, "local_rank", 0) == 0:\n    torch.save(model, "model.pt")\n',
        'import torch.distributed.checkpoint as checkpoint\ncheckpoint.save({}, checkpoint_id="/opt/ml/ck")\n',
        'import torch.distributed.checkpoint as dcp\ndcp.save(model.state_dict(), checkpoint_id="/opt/ml/ck")\n',
        'if args.save:\n    torch.save(model, "model.pt")\n',
        'if ALL:\n    if rank == 0:\n        torch.save(model, "model.pt")\nelse:\n    torch.save(model, "model.pt")\n',
        'if not ALL:\n    torch.save(model, "model.pt")\nelif rank == 0:\n    torch.save(model, "model.pt")\n',
    ],
)
def test_a_save_by_one_rank_is_accepted(tmp_path: Path, save: str) -> None:
    flag = 'parser.add_argument("--save", action="store_true")\nargs = parser.parse_args()\n'
    assert reported(tmp_path, sound(("args = parser.parse_args()\n", flag), (SAVE, save))) == []


def test_a_save_of_keras_by_every_rank_is_reported(tmp_path: Path) -> None:
    optimizer = "sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))"
    every = KERAS.format(before=SDP, optimizer=optimizer, after='model.save("/opt/ml/model/1")')
    assert codes(reported(tmp_path, every, TENSORFLOW)) == ["SMDP447"]
    first = KERAS.format(
        before=SDP, optimizer=optimizer, after='if sdp.rank() == 0:\n    model.save("/opt/ml/model/1")'
    )
    assert reported(tmp_path, first, TENSORFLOW) == []


# 448: epochs


@pytest.mark.parametrize(
    "loop",
    [
        LOOP,
        "for epoch in range(3, 10):\n",
        "for epoch in tqdm(range(args.epochs)):\n",
        "for _ in range(args.epochs):\n    epoch = 0\n",
    ],
)
def test_a_loop_without_set_epoch_is_reported(tmp_path: Path, loop: str) -> None:
    one = only(reported(tmp_path, sound((LOOP, loop), (SET_EPOCH, ""))))
    assert (one.code, one.help) == ("SMDP448", "begin the loop with sampler.set_epoch(epoch)")


@pytest.mark.parametrize(
    "changes",
    [
        ((SAMPLER, "sampler = DistributedSampler(train_data, shuffle=False)\n"),),
        ((LOOP, "for epoch in range(1):\n"),),
        ((LOOP, "for epoch in range(5, 6):\n"),),
        ((LOOP, "for step in range(1000):\n"),),
        ((LOOP, LOOP + "    loader.sampler.set_epoch(epoch)\n"),),
    ],
)
def test_a_loop_that_needs_no_set_epoch_is_accepted(tmp_path: Path, changes: Changes) -> None:
    assert reported(tmp_path, sound(*changes, (SET_EPOCH, ""))) == []


def test_the_jobs_number_of_epochs_counts(tmp_path: Path) -> None:
    once = (("{epochs: 2}", "{epochs: 1}"),)
    assert reported(tmp_path, sound((SET_EPOCH, "")), once) == []


# 449: requirements


@pytest.mark.parametrize(
    "line",
    [
        "torch==1.13.1",
        "torch<2",
        "torch>=2.1",
        "torch~=2.1.0",
        "torch==2.0.*,!=2.0.1",
        "torch==2.0.1+cpu",
        "torch==2.0.1+cu117",
        "numpy==2.1.0",
        "numpy>=2",
        "nvidia-cudnn-cu12",
        "cupy-cuda12x==13.0",
        "cupy-cuda102",
    ],
)
def test_a_requirement_that_replaces_a_part_of_the_image_is_reported(tmp_path: Path, line: str) -> None:
    one = only(reported(tmp_path, "print('trained')\n", modules={"requirements.txt": f"tqdm\n{line}\n"}))
    assert (one.code, one.text, one.span and one.span.line) == ("SMDP449", line, 2)


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch>=1.10",
        "torch==2.0.1",
        "torch==2.0.1+cu118",
        "torch~=2.0.0",
        "torch==2.0.*",
        "torch==2.1.0; python_version < '3.8'",
        "numpy<2",
        "numpy>=1.20",
        "numpy==1.26.4",
        "nvidia-ml-py",
        "nvidia-cudnn-cu11",
        "cupy-cuda11x",
        "tensorflow==2.11.0",
        "torchmetrics==1.0",
    ],
)
def test_a_requirement_that_fits_the_image_is_accepted(tmp_path: Path, line: str) -> None:
    assert reported(tmp_path, "print('trained')\n", modules={"requirements.txt": f"{line}\n"}) == []


def test_tensorflow_for_cpus_is_reported(tmp_path: Path) -> None:
    found = reported(tmp_path, "print('trained')\n", TENSORFLOW, {"requirements.txt": "tensorflow-cpu==2.11.1\n"})
    assert codes(found) == ["SMDP449"]


# 450: model parallelism


def test_model_parallelism_is_reported(tmp_path: Path) -> None:
    given = (("{epochs: 2}", "{epochs: 2, mp_parameters: {partitions: 2}}"),)
    one = only(reported(tmp_path, "print('trained')\n", given))
    assert (one.code, one.text) == ("SMDP450", "mp_parameters")
    imported = only(reported(tmp_path, "import smdistributed.modelparallel.torch as smp\nsmp.init()\n"))
    assert (imported.code, imported.span and imported.span.line) == ("SMDP450", 1)


@pytest.mark.parametrize(
    "script",
    [
        "try:\n    import smdistributed.modelparallel.torch as smp\nexcept ImportError:\n    smp = None\n",
        "def later():\n    import smdistributed.modelparallel.torch as smp\n    return smp\n",
        "import smdistributed.dataparallel.torch.torch_smddp\n",
    ],
)
def test_a_script_that_may_do_without_model_parallelism_is_accepted(tmp_path: Path, script: str) -> None:
    assert reported(tmp_path, script) == []
