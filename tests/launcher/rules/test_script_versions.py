"""The rules about saved models, needed versions, the hosts of Lightning and the local rank (SMDP465 to SMDP468)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher.rules.scripts import codes, only, reported

SAVE = "import torch\ntorch.save({}, 'model.pt')\n"
OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs')\np.add_argument('--{}', {})\n"
DIRECTORY = OPTION.format("output_dir", "default='out'")
NODES = (
    f"{OPTION.format('num_nodes', 'type=int')}import lightning\nlightning.Trainer(num_nodes=p.parse_args().num_nodes)\n"
)
EPOCHS = "{epochs: 2}"


@pytest.mark.parametrize(
    "saves", ["torch.save({}, 'model.pt')", "Model().save_pretrained('out')", "t.save_model('/tmp/model')"]
)
def test_model_outside_of_the_uploaded_folders_is_reported(tmp_path: Path, saves: str) -> None:
    one = only(
        reported(tmp_path, f"import torch\nfrom model import Model, t\n{saves}\n", modules={"model.py": "t = 1\n"})
    )
    assert (one.code, one.text) == ("SMDP465", saves)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (
            "def keep(state, best, name='checkpoint.pth.tar'):\n    torch.save(state, name)\nkeep({}, True)\n",
            "torch.save(state, name)",
        ),
        (
            "import os\nout = os.path.join('out', 'run')\ntorch.save(model, f'{out}/model.pt')\n",
            "torch.save(model, f'{out}/model.pt')",
        ),
        (
            "from pathlib import Path\nout = Path('/tmp')\ntorch.save({}, out / 'model.pt')\n",
            "torch.save({}, out / 'model.pt')",
        ),
        (
            "from transformers import Trainer, TrainingArguments\n"
            "trainer = Trainer(args=TrainingArguments(output_dir='out'))\ntrainer.save_model()\n",
            "trainer.save_model()",
        ),
    ],
    ids=["default of a parameter", "parts in a variable", "pathlib", "folder of the trainer"],
)
def test_path_of_a_model_is_followed(tmp_path: Path, script: str, text: str) -> None:
    one = only(reported(tmp_path, f"import torch\n{script}"))
    assert (one.code, one.text) == ("SMDP465", text)


def test_option_with_the_folder_is_in_the_help(tmp_path: Path) -> None:
    one = only(reported(tmp_path, f"{DIRECTORY}p.parse_args()\n{SAVE}"))
    assert "`output_dir: /opt/ml/model`" in one.help


@pytest.mark.parametrize(
    ("script", "hyperparameters"),
    [
        (f"{DIRECTORY}p.parse_args()\n{SAVE}", "{epochs: 2, output_dir: /opt/ml/model}"),
        (f"{SAVE}import os\nos.environ['SM_MODEL_DIR']\n", EPOCHS),
        (f"{SAVE}folder = '/opt/ml/checkpoints'\n", EPOCHS),
        (f"{SAVE}import wandb\nwandb.save('model.pt')\n", EPOCHS),
        (f"{SAVE}import s3fs\ns3fs.S3FileSystem().put('model.pt', 'bucket/model.pt')\n", EPOCHS),
        (f"{SAVE}open_file('s3://bucket/model.pt', 'wb')\n", EPOCHS),
        (f"{SAVE}from smdp_engine import checkpoint\n", EPOCHS),
        ("import io, torch\ntorch.save({}, io.BytesIO())\n", EPOCHS),
        ("import torch\nprint(torch.__version__)\n", EPOCHS),
    ],
)
def test_model_that_may_be_uploaded_is_not_reported(tmp_path: Path, script: str, hyperparameters: str) -> None:
    assert "SMDP465" not in codes(reported(tmp_path, script, [(EPOCHS, hyperparameters)]))


@pytest.mark.parametrize(
    ("script", "version", "expected"),
    [
        ("from torch.distributed.fsdp import fully_shard\n", "2.0.1", ["SMDP466"]),
        ("from torch.distributed.fsdp import fully_shard\n", "2.6.0", []),
        ("from torch.distributed.device_mesh import init_device_mesh\n", "2.1.2", ["SMDP466"]),
        ("from torch.distributed.device_mesh import init_device_mesh\n", "2.2.2", []),
        ("try:\n    from torch.distributed.fsdp import fully_shard\nexcept ImportError:\n    pass\n", "2.0.1", []),
        ("from torch.distributed.fsdp import FullyShardedDataParallel\n", "2.0.1", []),
    ],
)
def test_import_that_needs_a_later_pytorch_is_reported(
    tmp_path: Path, script: str, version: str, expected: list[str]
) -> None:
    assert codes(reported(tmp_path, script, [("2.0.1", version)])) == expected


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("transformers", ["SMDP466"]),
        ("transformers>=5", ["SMDP466"]),
        ("transformers>=4.30", ["SMDP466"]),
        ("transformers\ndatasets>=2.0\naccelerate", ["SMDP466"]),
        ("transformers<5", []),
        ("transformers==4.40.0", []),
        ("transformers; python_version >= '3.12'", []),
    ],
)
def test_requirement_that_needs_a_later_pytorch_is_reported(
    tmp_path: Path, requirement: str, expected: list[str]
) -> None:
    files = {"requirements.txt": f"{requirement}\n"}
    assert codes(reported(tmp_path, "import transformers\n", modules=files)) == expected
    assert codes(reported(tmp_path, "import transformers\n", [("2.0.1", "2.7.1")], files)) == []


@pytest.mark.parametrize(("nodes", "expected"), [(1, ["SMDP467"]), (2, [])])
def test_nodes_of_lightning_are_the_hosts_of_the_job(tmp_path: Path, nodes: int, expected: list[str]) -> None:
    job = [(EPOCHS, f"{{epochs: 2, num_nodes: {nodes}}}")]
    assert codes(reported(tmp_path, NODES, job)) == expected
    renamed = NODES.replace("--num_nodes", "--hosts").replace(".num_nodes", ".hosts")
    assert codes(reported(tmp_path, renamed, [(EPOCHS, f"{{epochs: 2, hosts: {nodes}}}")])) == expected
    assert "SMDP467" not in codes(reported(tmp_path, NODES.replace("lightning", "other"), job))


LOCAL_RANK = f"{OPTION.format('local_rank', 'type=int, default=0')}args = p.parse_args()\nimport torch\n"
SET_DEVICE = "torch.cuda.set_device(args.local_rank)\n"


def test_local_rank_from_the_command_line_is_reported(tmp_path: Path) -> None:
    (one,) = (one for one in reported(tmp_path, LOCAL_RANK + SET_DEVICE) if one.code == "SMDP468")
    assert one.text == "p.add_argument('--local_rank', type=int, default=0)"
    assert one.span is not None
    assert one.span.line == 4


@pytest.mark.parametrize(
    "script",
    [
        f"{LOCAL_RANK}print(args.local_rank)\n",
        f"{LOCAL_RANK}import os\nargs.local_rank = int(os.environ['LOCAL_RANK'])\n{SET_DEVICE}",
        f"{LOCAL_RANK}args.local_rank = args.rank % 8\n{SET_DEVICE}",
        f"import deepspeed\n{LOCAL_RANK}{SET_DEVICE}",
        f"import torch\nclass Args:\n    local_rank = 0\nargs = Args()\n{SET_DEVICE}",
    ],
)
def test_local_rank_from_elsewhere_is_not_reported(tmp_path: Path, script: str) -> None:
    assert "SMDP468" not in codes(reported(tmp_path, script))
