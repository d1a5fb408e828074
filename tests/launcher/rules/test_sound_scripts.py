"""Scripts that run as they should: `validate` reports nothing about them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from tests.conftest import JOB
from tests.launcher.rules.scripts import codes, reported

EPOCHS = "hyperparameters: {epochs: 2}"
BATCH = "batch: {per_gpu: 64, reference_size: 256, reference_learning_rate: 0.1}\n"
PARSER = "import argparse\np = argparse.ArgumentParser()\n"
MODEL = "import torch\nmodel = torch.nn.Linear(10, 1)\n"
SAVES = "import os, torch\ntorch.save({}, os.environ['SM_MODEL_DIR'] + '/m.pt')\n"


class Sound(NamedTuple):
    """``files``: others of the source folder. ``more``: of the job file."""

    script: str
    hyperparameters: str = "{}"
    files: dict[str, str] | None = None
    more: str = ""


SCRIPTS = {
    "nodes of a graph": Sound(
        f"""{PARSER}
import os
import torch
import lightning as L
from model import GCN
p.add_argument("--num_nodes", type=int, default=2708, help="nodes of the graph")
args = p.parse_args()
model = GCN(num_nodes=args.num_nodes)
hosts = int(os.environ["SM_HOST_COUNT"])
L.Trainer(num_nodes=hosts, default_root_dir=os.environ["SM_MODEL_DIR"]).fit(model)
""",
        "{num_nodes: 2708}",
        {"model.py": "import lightning as L\nclass GCN(L.LightningModule):\n    pass\n"},
    ),
    "nodes of a graph, and a Trainer without nodes": Sound(
        f"""{PARSER}
import os
import pytorch_lightning as pl
p.add_argument("--num_nodes", type=int, default=34)
args = p.parse_args()
trainer = pl.Trainer(max_epochs=3, default_root_dir=os.environ["SM_MODEL_DIR"])
print(args.num_nodes)
""",
        "{num_nodes: 34}",
    ),
    "hosts from the environment": Sound(
        f"""{PARSER}
import os
import lightning as L
p.add_argument("--num_nodes", type=int, default=1)
args = p.parse_args()
L.Trainer(num_nodes=int(os.environ.get("SM_HOST_COUNT", args.num_nodes)))
""",
        "{num_nodes: 1}",
    ),
    "hosts from the environment in one branch": Sound(
        f"""{PARSER}
import os
import lightning as L
p.add_argument("--num_nodes", type=int, default=1)
args = p.parse_args()
if "SM_HOST_COUNT" in os.environ:
    trainer = L.Trainer(num_nodes=int(os.environ["SM_HOST_COUNT"]))
else:
    trainer = L.Trainer(num_nodes=args.num_nodes)
""",
        "{num_nodes: 1}",
    ),
    "a second parser with subcommands": Sound(
        """
import argparse, os
def cli():
    p = argparse.ArgumentParser()
    commands = p.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train"); train.add_argument("--lr")
    return p.parse_args()
def sagemaker():
    p = argparse.ArgumentParser()
    p.add_argument("--lr")
    return p.parse_args()
args = sagemaker() if "SM_MODEL_DIR" in os.environ else cli()
""",
        "{lr: 0.1}",
    ),
    "a parser without a name, and one with subcommands": Sound(
        """
import argparse, os
def cli():
    p = argparse.ArgumentParser()
    commands = p.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train"); train.add_argument("--lr")
    return p.parse_args()
def sagemaker():
    return argparse.ArgumentParser().parse_known_args()
args = sagemaker() if "SM_MODEL_DIR" in os.environ else cli()
""",
        "{lr: 0.1}",
    ),
    "a function literal_eval of its own": Sound(
        f"""{PARSER}
import ast
def literal_eval(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
p.add_argument("--layers", type=literal_eval)
p.parse_args()
""",
        "{layers: 64x3}",
    ),
    "json5 as json": Sound(
        f"{PARSER}import json5 as json\np.add_argument('--options', type=json.loads)\np.parse_args()\n",
        "{options: '{lr: 0.1}'}",
    ),
    "one of two modules as json": Sound(
        f"""{PARSER}
try:
    import json5 as json
except ImportError:
    import json
p.add_argument("--options", type=json.loads)
p.parse_args()
""",
        "{options: '{lr: 0.1}'}",
    ),
    "negative numbers of its own": Sound(
        f"""{PARSER}
import re
p._negative_number_matcher = re.compile(r"^-\\d*\\.?\\d+([eE][-+]?\\d+)?$")
p.add_argument("--bias", type=float)
p.parse_args()
""",
        "{bias: -1.0e-05}",
    ),
    "a function bool of its own": Sound(
        f"""{PARSER}
def bool(text):
    return text == "True"
p.add_argument("--fp16", type=bool)
p.parse_args()
""",
        "{fp16: false}",
    ),
    "a folder in config.yaml": Sound(
        f"""{PARSER}{MODEL}
import yaml
p.add_argument("--config")
config = yaml.safe_load(open(p.parse_args().config))
torch.save(model.state_dict(), config["output_dir"] + "/model.pt")
""",
        "{config: config.yaml}",
        {"config.yaml": "output_dir: /opt/ml/model\n"},
    ),
    "a folder in config.yaml that replaces a default": Sound(
        f"""{PARSER}{MODEL}
import yaml
p.add_argument("--output_dir", default="out")
p.set_defaults(**yaml.safe_load(open("config.yaml")))
torch.save(model.state_dict(), p.parse_args().output_dir + "/model.pt")
""",
        files={"config.yaml": "output_dir: /opt/ml/model\n"},
    ),
    "a folder in a file for transformers": Sound(
        """
from transformers import AutoModel, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_json_file("args.json")
trainer = Trainer(model=AutoModel.from_pretrained("distilbert-base-uncased"), args=args)
trainer.train()
trainer.save_model(args.output_dir)
""",
        "{config: args.json}",
        {"args.json": '{"output_dir": "/opt/ml/model"}'},
    ),
    "parts of a path": Sound(
        f"{MODEL}from pathlib import Path\nout = Path('/opt') / 'ml' / 'model'\ntorch.save(model, out / 'model.pt')\n"
    ),
    "joined parts of a path": Sound(
        f"""{MODEL}
import os
out = os.path.join("/opt", "ml", "model")
torch.save(model.state_dict(), os.path.join(out, "model.pt"))
"""
    ),
    "a path from the folder of the code": Sound(f"{MODEL}torch.save(model.state_dict(), '../model/model.pt')\n"),
    "a format that begins with the folder": Sound(
        f"{MODEL}import settings\ntorch.save(model.state_dict(), '%s/model.pt' % settings.folder)\n"
    ),
    "a copy in an unknown folder": Sound(
        f"{MODEL}import settings\ntorch.save(model, 'best.pt')\ntorch.save(model, settings.folder + '/model.pt')\n"
    ),
    "a link": Sound(
        f"""{MODEL}
import os
os.symlink(os.path.dirname(os.environ["SM" + "_MODEL_DIR"]), "out")
torch.save(model.state_dict(), "out/model/model.pt")
"""
    ),
    "uploads to S3": Sound(
        f"""{MODEL}
import boto3
torch.save(model.state_dict(), "/tmp/model.pt")
boto3.client("s3").upload_file("/tmp/model.pt", "my-models", "imagenet/model.pt")
"""
    ),
    "uploads to MLflow": Sound(
        f"{MODEL}import mlflow\ntorch.save(model.state_dict(), 'model.pt')\nmlflow.log_artifact('model.pt')\n"
    ),
    "uploads to Weights & Biases": Sound(
        f"""{MODEL}
import wandb
run = wandb.init()
torch.save({{"model": model.state_dict()}}, "/tmp/state.pt")
artifact = wandb.Artifact("m", type="model")
artifact.add_file("/tmp/state.pt")
run.log_artifact(artifact)
"""
    ),
    "uploads to the Hub": Sound(
        """
from transformers import AutoModel
model = AutoModel.from_pretrained("bert-base-uncased")
model.save_pretrained("out", push_to_hub=True, repo_id="me/bert")
"""
    ),
    "saves no model": Sound(
        """
import torch
def features():
    return torch.zeros(3)
torch.save(features(), "/tmp/features.pt")
"""
    ),
    "a constraint for transformers": Sound(
        SAVES,
        files={
            "requirements.txt": "-c constraints.txt\ntransformers\n",
            "constraints.txt": "transformers==4.40.2\n",
        },
    ),
    "a package that limits transformers": Sound(
        SAVES, files={"requirements.txt": "transformers>=4.34\nsentence-transformers==3.0.1\n"}
    ),
    "transformers in two lines": Sound(SAVES, files={"requirements.txt": "transformers\ntransformers<5\n"}),
    "a learning rate that the script scales": Sound(
        f"""{PARSER}{SAVES}
import torch.distributed as dist
p.add_argument("--lr", type=float, default=0.1, help="for a batch of 256")
p.add_argument("--batch-size", type=int, default=64)
args = p.parse_args()
lr = args.lr * int(os.environ["WORLD_SIZE"]) * args.batch_size / 256
""",
        more=BATCH,
    ),
    "a learning rate that the script scales in place": Sound(
        f"""{PARSER}{SAVES}
import torch.distributed as dist
p.add_argument("--lr", type=float, default=0.1)
args = p.parse_args()
args.lr *= dist.get_world_size()
""",
        more=BATCH,
    ),
    "a package that the script names": Sound(
        """
import os, sys
if __name__ == "__main__" and not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    globals()["__package__"] = "code"
    import code
from .data import load
""",
        files={"__init__.py": "", "data.py": "def load(): pass\n"},
    ),
    "a relative import outside of the main script": Sound(
        """
if __name__ != "__main__":
    from .data import load
else:
    from data import load
""",
        files={"data.py": "def load(): pass\n"},
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_sound_script_gives_no_diagnostics(tmp_path: Path, name: str) -> None:
    script, hyperparameters, files, more = SCRIPTS[name]
    last = JOB.splitlines()[-1] + "\n"
    job = ((EPOCHS, f"hyperparameters: {hyperparameters}"), (last, last + more))
    assert codes(reported(tmp_path, dedent(script), job, files)) == []
