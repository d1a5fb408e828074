"""The rules about models that are written as pickles: which pairs of scripts are reported, and which are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from tests.conftest import JOB, write_job
from tests.support.serving.served import SERVE

HEAD = "import os\nimport pickle\n\nimport torch\nfrom torch import nn\n\n"
NET = "\n\nclass Net(nn.Module):\n    pass\n\n\n"
FOLDER = "os.environ['SM_MODEL_DIR']"
SAVE = f"torch.save(model, os.path.join({FOLDER}, 'model.pt'))\n"
LOADS = (
    "import torch\n\n\ndef model_fn(model_dir):\n"
    "    return torch.load(model_dir + '/model.pt', map_location='cpu', weights_only=False)\n"
)


def found(folder: Path, trains: str, serves: str = LOADS, job: str = JOB, **modules: str) -> list[str]:
    """The code and the message of each diagnostic of the two scripts that is about pickles."""
    path = write_job(folder, job + SERVE, trains)
    (folder / "src" / "inference.py").write_text(serves)
    for name, text in modules.items():
        (folder / "src" / f"{name}.py").write_text(text)
    said = check_job(path, environ={}).diagnostics
    return [f"{one.severity.value} {one.code} {one.message}" for one in said if "SMDP825" <= one.code <= "SMDP831"]


OF_NET = "error SMDP825 torch.save writes `__main__.Net` by name, which the endpoint cannot import"


@pytest.mark.parametrize(
    "trains",
    [
        f"model = Net()\n{SAVE}",
        f"model = Net().to('cpu').eval()\n{SAVE}",
        f"def make():\n    net = Net()\n    return net\n\n\nmodel = make()\n{SAVE}",
        f"import copy\nnet = Net()\nmodel = copy.deepcopy(net)\n{SAVE}",
        f"model = nn.Sequential(nn.Flatten(), Net())\n{SAVE}",
        f"model = {{'model': Net(), 'epoch': 3}}\n{SAVE}",
        f"model = nn.Linear(2, 2)\nmodel.head = Net()\n{SAVE}",
        f"model = Net() if os.environ.get('SMALL') else nn.Linear(2, 2)\n{SAVE}",
        f"model = nn.parallel.DistributedDataParallel(Net())\ntorch.save(model.module, {FOLDER} + '/model.pt')\n",
        f"def save(net, folder):\n    path = os.path.join(folder, 'model.pt')\n    torch.save(net, path)\n\n\n"
        f"def main():\n    net = Net()\n    save(net, {FOLDER})\n\n\nmain()\n",
        f"class Trainer:\n    def __init__(self):\n        self.model = Net()\n\n    def save(self, folder):\n"
        f"        torch.save(self.model, folder + '/model.pt')\n\n\nTrainer().save({FOLDER})\n",
        f"with open({FOLDER} + '/model.pt', 'wb') as file:\n    torch.save(Net(), f=file)\n",
    ],
)
def test_class_of_the_entry_point_is_found_where_it_is_saved(tmp_path: Path, trains: str) -> None:
    assert found(tmp_path, HEAD + NET + trains) == [OF_NET]


@pytest.mark.parametrize(
    "trains",
    [
        f"model = Net()\ntorch.save(model.state_dict(), {FOLDER} + '/model.pt')\n",
        f"model = Net()\nstate = model.state_dict()\ntorch.save({{'state': state}}, {FOLDER} + '/model.pt')\n",
        f"model = nn.Linear(2, 2)\n{SAVE}",
        f"model = torch.jit.script(Net())\n{SAVE}",
        "torch.save(Net(), '/opt/ml/checkpoints/last.pt')\n",  # the endpoint reads another file
        f"def export():\n    model = Net()\n    return model.state_dict()\n\n\nmodel = nn.Linear(2, 2)\n{SAVE}",
        f"model = unknown(Net())\n{SAVE}",
        "model = model\nmodel = other = model\nother = model\n" + SAVE,
    ],
)
def test_other_objects_and_files_are_no_problem(tmp_path: Path, trains: str) -> None:
    assert found(tmp_path, HEAD + NET + trains) == []


def test_class_in_a_module_is_importable_unless_it_is_in_a_subfolder(tmp_path: Path) -> None:
    trains = f"import os\nimport torch\nfrom net import Net\n\nmodel = Net()\n{SAVE}"
    assert found(tmp_path, trains, net=f"from torch import nn{NET}") == []
    below = tmp_path / "src" / "training"
    below.mkdir()
    (tmp_path / "src" / "net.py").rename(below / "net.py")
    (below / "train.py").write_text(trains)
    said = found(tmp_path, trains, job=JOB.replace("train.py", "training/train.py"))
    assert said == ["error SMDP825 torch.save writes `net.Net` by name, which the endpoint cannot import"]


@pytest.mark.parametrize(
    "serves",
    [
        f"import __main__\nfrom net import Net\n\n__main__.Net = Net\n{LOADS}",
        "import torch\n\n\ndef model_fn(model_dir):\n    return torch.load(model_dir + '/other.pt', 'cpu')\n",
        "import torch\n\n\ndef model_fn(model_dir):\n    return torch.jit.load(model_dir + '/model.pt', 'cpu')\n",
        "def model_fn(model_dir)\n",
    ],
)
def test_serving_script_that_reads_it_in_another_way_is_no_problem(tmp_path: Path, serves: str) -> None:
    assert found(tmp_path, f"{HEAD}{NET}model = Net()\n{SAVE}", serves) == []


def test_file_whose_name_is_not_known_gives_a_warning(tmp_path: Path) -> None:
    trains = f"{HEAD}{NET}name = input()\ntorch.save(Net(), os.path.join({FOLDER}, name))\n"
    assert found(tmp_path, trains) == [OF_NET.replace("error", "warning")]


def test_function_within_a_pipeline_is_pickled_by_name(tmp_path: Path) -> None:
    trains = (
        "import os\nimport joblib\nfrom sklearn.pipeline import Pipeline\n"
        "from sklearn.preprocessing import FunctionTransformer\n\n\ndef scaled(values):\n    return values / 255\n\n\n"
        "model = Pipeline([('scale', FunctionTransformer(scaled))])\nmodel.fit([[1]], [1])\n"
        f"joblib.dump(model, {FOLDER} + '/model.joblib')\n"
    )
    serves = "import joblib\n\n\ndef model_fn(model_dir):\n    return joblib.load(model_dir + '/model.joblib')\n"
    requirements = tmp_path / "src" / "requirements.txt"
    requirements.parent.mkdir()
    requirements.write_text("joblib\n")
    (said,) = found(tmp_path, trains, serves)
    assert said == "error SMDP825 joblib.dump writes `__main__.scaled` by name, which the endpoint cannot import"


@pytest.mark.parametrize(
    ("trains", "is_reported"),
    [
        ("", True),
        ("model = model.module if world_size > 1 else model\n", False),
        ("if hasattr(model, 'module'):\n    model = model.module\n", False),
        ("model = accelerator.unwrap_model(model)\n", False),
    ],
)
def test_wrapper_is_reported_unless_the_script_unwraps_models(
    tmp_path: Path, trains: str, *, is_reported: bool
) -> None:
    head = f"{HEAD}from torch.nn.parallel import DistributedDataParallel as DDP\n"
    said = found(tmp_path, f"{head}model = DDP(nn.Linear(2, 2))\n{trains}{SAVE}")
    text = "warning SMDP826 torch.save writes the model in DDP, which can be read only in a process group"
    assert said == ([text] if is_reported else [])


@pytest.mark.parametrize(
    ("made", "is_reported"),
    [
        ("timm.create_model('resnet50')", True),
        ("timm.models.VisionTransformer()", True),
        ("timm.load_state_dict('resnet50')", False),  # tensors
        ("timm.data.mean_of_images()", False),
    ],
)
def test_package_of_the_object_is_needed_where_a_call_makes_one(
    tmp_path: Path, made: str, *, is_reported: bool
) -> None:
    said = found(tmp_path, f"{HEAD}import timm\nmodel = {made}\n{SAVE}")
    text = "warning SMDP826 torch.save writes an object of timm, which AWS's inference image does not have"
    assert said == ([text] if is_reported else [])


@pytest.mark.parametrize(
    ("version", "arguments", "is_reported"),
    [
        ("2.6.0", "", True),
        ("2.10", "", True),
        ("2.5.1", "", False),
        ("2.6.0", ", weights_only=False", False),
        ("2.6.0", ", weights_only=True", False),
        ("2.6.0", ", **OPTIONS", False),
    ],
)
def test_whole_model_needs_permission_since_2_6(
    tmp_path: Path, version: str, arguments: str, *, is_reported: bool
) -> None:
    serves = LOADS.replace(", weights_only=False", arguments)
    job = JOB.replace('version: "2.0.1"', f'version: "{version}"')
    said = found(tmp_path, f"{HEAD}model = nn.Linear(2, 2)\n{SAVE}", serves, job)
    text = f"error SMDP827 the file has a whole model, and torch.load of PyTorch {version} reads only tensors"
    assert said == ([text] if is_reported else [])


@pytest.mark.parametrize(
    ("trains", "load", "is_reported"),
    [
        ("model = nn.Linear(2, 2).cuda()\n", "torch.load(path)", True),
        ("model = nn.Linear(2, 2).cuda().cpu()\n", "torch.load(path)", False),
        ("model = nn.Linear(2, 2)\n", "torch.load(path)", False),
        ("model = nn.Linear(2, 2).cuda()\n", "torch.load(path, 'cpu')", False),
    ],
)
def test_tensors_of_a_gpu_need_map_location(tmp_path: Path, trains: str, load: str, *, is_reported: bool) -> None:
    serves = f"import torch\n\n\ndef model_fn(model_dir):\n    path = model_dir + '/model.pt'\n    return {load}\n"
    said = found(tmp_path, HEAD + trains + SAVE.replace("model,", "model.state_dict(),"), serves)
    text = "warning SMDP828 the model is saved from a GPU, and ml.m5.large has none: torch.load fails without"
    assert [one.startswith(text) for one in said] == ([True] if is_reported else [])


def test_hostile_script_is_read_in_bounded_time(tmp_path: Path) -> None:
    """Each of 40 names may be each of them: followed without a limit, this takes 40 to the power of 12 steps."""
    names = [f"a{number}" for number in range(40)]
    lines = [f"{one} = {other}\n" for one in names for other in names]
    assert found(tmp_path, f"{HEAD}{''.join(lines)}torch.save(a0, {FOLDER} + '/' + a1)\n") == []


def test_reported_pickle_fails_at_the_endpoint_and_the_fixed_one_does_not(tmp_path: Path) -> None:
    """The scripts run as in the containers: the first as ``__main__``, the second as a module."""
    net = "class Net:\n    size = 3\n"
    saves = f"with open({FOLDER} + '/model.pkl', 'wb') as file:\n    pickle.dump(Net(), file)\n"
    loads = (
        "import pickle\n\n\ndef model_fn(model_dir):\n    return pickle.load(open(model_dir + '/model.pkl', 'rb'))\n"
    )
    head = "import os\nimport pickle\n\n"

    def run(*command: str) -> str:
        environment = {"SM_MODEL_DIR": str(tmp_path), "PYTHONPATH": str(tmp_path / "src")}
        ran = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        return ran.stdout + ran.stderr

    answer = f"import inference; print(inference.model_fn({str(tmp_path)!r}).size)"
    said = found(tmp_path, f"{head}{net}\n\n{saves}", f"{net}\n\n{loads}")
    assert said == ["error SMDP825 pickle.dump writes `__main__.Net` by name, which the endpoint cannot import"]
    assert run(str(tmp_path / "src" / "train.py")) == ""
    assert "Can't get attribute 'Net' on <module '__main__'" in run("-c", answer)
    assert found(tmp_path, f"{head}from net import Net\n\n{saves}", loads, net=net) == []
    assert run(str(tmp_path / "src" / "train.py")) == ""
    assert run("-c", answer) == "3\n"
