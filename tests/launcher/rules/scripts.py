"""Scripts for the tests of the rules about distributed training, and functions that check them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic
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
import os
import tensorflow as tf
{before}
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[int(os.environ["LOCAL_RANK"])], "GPU")
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
