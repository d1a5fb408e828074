"""The job file that init writes: valid, from the script's own values, and never over another file."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.draft.jobfile import HEADER
from smdp_launch.errors import ExitCode
from tests.conftest import LAUNCHER, ROOT, clean_environment
from tests.support import command
from tests.support.doc_examples import blocks, shell
from tests.support.jobs.init import load, make

SCRIPTS = ROOT / "tests/launcher/scripts"
TORCH = "import torch\nif __name__ == '__main__':\n    torch.zeros(1)\n"


def run(folder: Path, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the installed command in ``folder``, without a terminal."""
    return command.run(folder, *arguments, **{"timeout": 60, **options})


def data(path: Path) -> Any:
    return load(path.read_text(encoding="utf-8"))


def drafted(tmp_path: Path, folder: Path, *arguments: str, warned: Sequence[str] = ()) -> Any:
    """The job file of init for ``folder``, which gives only the warnings ``warned``."""
    ran = run(tmp_path, "init", folder, *arguments)
    assert ran.returncode == 0, ran.stderr
    checked = run(tmp_path, "validate")
    assert (checked.returncode, checked.stderr.splitlines()[-1]) == (0, "next: smdp-launch plan")
    assert re.findall(r"^warning\[(SMDP\d+)\]|^(?!warning)\w+\[", checked.stderr, re.MULTILINE) == list(warned)
    return data(tmp_path / "job.yaml")


# Contents

OPTION = "import argparse\np = argparse.ArgumentParser()\np.add_argument("


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        (name, engine)
        for name in ("tensorflow_loop", "transformers_trainer", "own_module", "two_scripts")
        for engine in ("native", "smdistributed")
    ],
)
def test_each_kind_of_script_gets_a_valid_job_file(tmp_path: Path, name: str, engine: str) -> None:
    shutil.copytree(SCRIPTS / name, tmp_path / name)
    # These two pin what is not in an image of the native engine: a version, and the build for CUDA 12.1.
    pins = engine == "native" and name in ("tensorflow_loop", "transformers_trainer")
    job = drafted(tmp_path, Path(name), "--engine", engine, warned=["SMDP449"] if pins else [])
    assert (job["name"], job["engine"], job["script"]["source"]) == (name.replace("_", "-"), engine, name)
    assert ("image" in job) == (engine == "native")
    assert run(tmp_path, "plan", "--json").returncode == 0


def test_default_engine_supports_the_pinned_version(tmp_path: Path) -> None:
    assert drafted(tmp_path, SCRIPTS / "tensorflow_loop")["engine"] == "smdistributed"
    job = drafted(tmp_path, SCRIPTS / "tensorflow_loop", "--engine", "native", "--force", warned=["SMDP449"])
    assert job["framework"] == {"name": "tensorflow", "version": "2.14.1"}


@pytest.mark.parametrize(
    ("script", "channels"),
    [
        ("print(1)\n", None),
        (f"{OPTION}'--output_dir')\n", None),
        (f"{OPTION}'--lr', type=float)\n", None),
        (f"{OPTION}'--loss', choices=['l1', 'l2'])\n", None),
        ("import os\nprint(os.environ.get('LOCAL_RANK'), 'RANK' in os.environ)\n", None),
        (f"{OPTION}'--train-file')\n", ["train"]),
        *((f"{OPTION}'{name}')\n", None) for name in ("--outdir", "--log-dir", "--save_path", "--pretrained_model")),
        (f"{OPTION}'--cache_dir', default='/tmp/cache')\n", None),
        (f"{OPTION}'--cache_dir', default='/data/cache')\n", ["train"]),
        (f"{OPTION}'--images')\n", ["train"]),
        *((f"{OPTION}'{name}')\n", ["train"]) for name in ("--dialogs", "--catalog", "--routes", "--src-layout")),
        ("import os\nprint(os.environ['DATA_DIR'])\n", ["train"]),
        ("import os\nprint(os.environ[f'SM_CHANNEL_{x}'])\n", ["train"]),
        ("import fire\ndef main(data_path): pass\nfire.Fire(main)\n", ["train"]),
        ("import hydra\n@hydra.main(config_path='conf')\ndef main(cfg): print(cfg.root)\nmain()\n", ["train"]),
        ("import transformers\na = transformers.HfArgumentParser(A)\n", ["train"]),
        ("import sagemaker_training.environment as e\nprint(e.Environment().channel_input_dirs)\n", ["train"]),
        ("from pathlib import Path\nprint(Path('/opt') / 'ml' / 'input')\n", ["train"]),
        ("import yaml\nprint(yaml.safe_load(open('conf.yaml')))\n", ["train"]),
        ("import os\nprint(os.environ['SM_INPUT_DIR'])\n", ["train"]),
        ("import os\nprint(os.environ['SM_CHANNEL_TEST'])\n", ["test"]),
    ],
)
def test_only_script_whose_input_is_wholly_read_gets_no_channel(
    tmp_path: Path, script: str, channels: list[str] | None
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(f"import torch\n{script}")
    job = drafted(tmp_path, Path("src"))
    assert list(job["channels"]) == channels if channels is not None else "channels" not in job
    assert ("silence" in job) == (channels is None)
    local = run(tmp_path, "launch", "--local", "--dry-run")
    assert (local.returncode, "SMDP407" in local.stderr) == ((0, False) if channels is None else (3, True))


@pytest.mark.parametrize(
    ("script", "required", "version"),
    [
        ("from torch.distributed.fsdp import fully_shard\n", "", "2.7.1"),
        ("import transformers\n", "transformers\n", "2.7.1"),
        ("import transformers\n", "transformers<5\n", "2.0.1"),
        ("import transformers\n", "transformers\ntransformers<5\n", "2.0.1"),
        ("import transformers\n", "transformers\nnumpy<2\n", "2.7.1"),
    ],
)
def test_version_has_what_the_script_needs(tmp_path: Path, script: str, required: str, version: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(f"import torch\n{script}")
    (tmp_path / "src" / "requirements.txt").write_text(required)
    job = drafted(tmp_path, Path("src"))
    assert (job["framework"]["version"], job["image"].rpartition(":")[2]) == (version, f"{version}-cu118")


def test_lightning_gets_the_number_of_hosts(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    script = f"{OPTION}'--num_nodes', type=int, default=1)\na = p.parse_args()\n"
    script += "import lightning\nlightning.Trainer(num_nodes=a.num_nodes)\n"
    (tmp_path / "src" / "train.py").write_text(script)
    job = drafted(tmp_path, Path("src"))
    assert job["script"]["hyperparameters"]["num_nodes"] == job["compute"]["instance_count"] == 2
    of_a_graph = script.replace("Trainer(num_nodes=a.num_nodes)", "Trainer()\nprint(a.num_nodes)")
    (tmp_path / "src" / "train.py").write_text(of_a_graph)
    assert drafted(tmp_path, Path("src"), "--force")["script"]["hyperparameters"]["num_nodes"] == 1


PARSED = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--dist-backend', default='nccl')\n"
    "a = p.parse_args()\n"
)


@pytest.mark.parametrize(
    ("start", "engine"),
    [
        ('dist.init_process_group("nccl")', "nccl"),
        ('dist.init_process_group(backend="nccl")', "nccl"),
        ('dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")', "nccl"),
        (f"{PARSED}dist.init_process_group(a.dist_backend)", "nccl"),
        (f'{PARSED}dist.init_process_group(a.dist_backend if torch.cuda.is_available() else "gloo")', "nccl"),
        (f"{PARSED}def start(backend):\n    dist.init_process_group(backend)\nstart(a.dist_backend)", "nccl"),
        ('def start(backend):\n    dist.init_process_group(backend)\nstart("nccl")', "native"),
        ('dist.init_process_group("gloo")', "native"),
        ('dist.init_process_group("smddp")', "native"),
        ("dist.init_process_group()", "nccl"),
    ],
)
def test_script_with_nccl_gets_the_engine_nccl(tmp_path: Path, start: str, engine: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(f"import torch\nimport torch.distributed as dist\n{start}\n")
    ran = run(tmp_path, "init", "src")
    assert ran.returncode == 0, ran.stderr
    assert data(tmp_path / "job.yaml")["engine"] == engine


def test_template_script_gives_its_channels_and_hyperparameters(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    job = drafted(tmp_path, Path("templates/scripts"), "--name", "mnist")
    assert (job["name"], job["script"]["entry"]) == ("mnist", "mnist_ddp.py")
    assert job["framework"] == {"name": "pytorch", "version": "2.0.1"}
    assert list(job["channels"]) == ["train", "test"]
    assert job["script"]["hyperparameters"]["lr"] == 0.05
    assert "model-dir" not in job["script"]["hyperparameters"]
    assert job["checkpoint"] == {"s3": "s3://your-bucket/mnist/checkpoints"}
    assert (tmp_path / "job.yaml").read_text().startswith("\n".join(HEADER))


def test_tensorflow_loop_gets_its_pinned_version_and_quoted_values(tmp_path: Path) -> None:
    job = drafted(tmp_path, SCRIPTS / "tensorflow_loop", "--engine", "smdistributed")
    assert job["framework"] == {"name": "tensorflow", "version": "2.9.2"}
    assert job["script"]["hyperparameters"] == {"learning_rate": 1e-5, "batch_size": 64, "activation": "on"}
    text = (tmp_path / "job.yaml").read_text()
    assert '"2.9.2" # requirements.txt, line 1' in text
    assert "    # xla: # a flag" in text
    assert "    # model_dir: # the script has no default; write a value to pass it\n" in text


def test_trainer_script_is_read_with_its_modules(tmp_path: Path) -> None:
    job = drafted(tmp_path, SCRIPTS / "transformers_trainer", "--engine", "smdistributed")
    assert job["script"]["entry"] == "run_classifier.py"
    # torch 2.1.0 is pinned, and built with CUDA 12.1.
    assert (job["framework"]["version"], job["policy"]) == ("2.1.0", "extended")
    assert job["script"]["hyperparameters"] == {
        "model_name": "distilbert-base-uncased",
        "revision": "1.10",
        "epochs": 3,
        "learning_rate": 5e-5,
    }
    assert list(job["channels"]) == ["train", "eval"]
    text = (tmp_path / "job.yaml").read_text()
    assert '    # labels: ["no", "yes"] # takes several values' in text
    assert "    # fp16: false # type=bool reads the text False as true" in text


def test_smdistributed_module_gets_a_version_that_contains_it(tmp_path: Path) -> None:
    job = drafted(tmp_path, SCRIPTS / "own_module", "--engine", "smdistributed")
    assert job["framework"]["version"] == "2.0.0"
    assert job["script"]["hyperparameters"] == {"epochs": 2, "momentum": 0.9, "schedule": "off", "tag": "your-tag"}
    assert list(job["channels"]) == ["numbers"]
    (tmp_path / "job.yaml").unlink()
    assert drafted(tmp_path, SCRIPTS / "own_module")["framework"]["version"] == "2.0.1"


@pytest.mark.parametrize(
    ("requirements", "engine", "version", "policy", "warned"),
    [
        ("torch==1.13.1\n", "smdistributed", "1.13.1", None, []),
        ("torch==2.1.0\n", "smdistributed", "2.1.0", "extended", []),
        ("torch==1.13.1\n", "native", "2.0.1", None, ["SMDP449"]),
        ("torch==2.6.0\n", "smdistributed", "2.0.1", None, ["SMDP449"]),
        ("torch==1.5.0\n", "native", "2.0.1", None, ["SMDP449"]),
        ("torch==2.0.99\n", "native", "2.0.1", None, ["SMDP449"]),
        ("torch>=2\n", "native", "2.0.1", None, []),
        ("torch==2.1.0rc1\n", "native", "2.0.1", None, []),
        ("torch==2.0.*\n", "native", "2.0.1", None, []),
    ],
)
def test_pinned_framework_is_used_if_the_engine_supports_it(
    tmp_path: Path, requirements: str, engine: str, version: str, policy: str | None, warned: list[str]
) -> None:
    make(tmp_path / "src", {"train.py": TORCH, "requirements.txt": requirements})
    job = drafted(tmp_path, Path("src"), "--engine", engine, warned=warned)
    assert (job["framework"]["version"], job.get("policy")) == (version, policy)


def test_folder_with_special_characters_gives_a_valid_job(tmp_path: Path) -> None:
    folder = make(tmp_path / "Über: größe #1 'x'\n", {"train é.py": TORCH})
    job = drafted(tmp_path, folder.relative_to(tmp_path))
    assert job["name"] == "Uber-groe-1-x"
    assert job["script"]["entry"] == "train é.py"
    assert job["script"]["source"] == folder.name


def test_local_data_is_found_and_written(tmp_path: Path) -> None:
    script = TORCH + "import os\nos.environ['SM_CHANNEL_TRAIN'], os.environ['SM_CHANNEL_EVAL']\n"
    make(tmp_path, {"src/train.py": script, "src/data/train/part": "1", "eval/loop.py": "", "src/train/loop.py": ""})
    (tmp_path / "data" / "eval").mkdir(parents=True)
    ran = run(tmp_path, "init", "src")
    assert ran.returncode == 0
    assert "src/data/train" not in ran.stderr
    assert "note: data/train/ is the data of channel train and is also uploaded with the source" in ran.stderr
    assert data(tmp_path / "job.yaml")["local"] == {"channels": {"train": "src/data/train"}}
    assert "    # eval: data/eval" in (tmp_path / "job.yaml").read_text()
    assert ran.stdout.splitlines()[-1] == "next: smdp-launch plan job.yaml"
    make(tmp_path, {"data/eval/part": "1", "src/.smdpignore": "data/\n"})
    ran = run(tmp_path, "init", "src", "--force")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert data(tmp_path / "job.yaml")["local"]["channels"] == {"train": "src/data/train", "eval": "data/eval"}
    assert ran.stdout.splitlines()[-1] == "next: smdp-launch launch job.yaml --local"


def test_output_can_be_in_another_folder(tmp_path: Path) -> None:
    make(tmp_path, {"src/train.py": TORCH, "jobs/a b/x": ""})
    (tmp_path / "link").symlink_to("jobs/a b")
    for output in ("jobs/a b/my job.yaml", "link/other.yaml"):
        ran = run(tmp_path, "init", "src", "--output", output)
        assert ran.returncode == 0, ran.stderr
        assert run(tmp_path, "validate", output).returncode == 0
    assert ran.stdout.splitlines()[0] == "wrote link/other.yaml"


def test_required_absl_flag_gets_a_placeholder(tmp_path: Path) -> None:
    script = "import torch\nfrom absl import app, flags\n\nflags.DEFINE_string('mode', None, 'train or export')\n"
    main = "def main(argv):\n    print(flags.FLAGS.mode)\n\n\nif __name__ == '__main__':\n    app.run(main)\n"
    make(tmp_path / "src", {"train.py": f"{script}flags.mark_flag_as_required('mode')\n\n\n{main}"})
    assert drafted(tmp_path, Path("src"))["script"]["hyperparameters"] == {"mode": "your-mode"}


def test_option_in_a_form_that_sagemaker_does_not_pass_is_a_comment(tmp_path: Path) -> None:
    own = "import argparse\nimport torch\nimport helpers\n\nparser = argparse.ArgumentParser()\n"
    options = (
        "parser.add_argument('-lr', type=float, default=0.1)\nparser.add_argument('--epochs', type=int, default=2)\n"
    )
    other = "if __name__ == '__main__':\n    parser = argparse.ArgumentParser()\n"
    other += "    parser.add_argument('--port', default=1)\n"
    files = {
        "train.py": f"{own}{options}parser.parse_args()\n",
        "helpers.py": f"import argparse\n{other}    parser.parse_args()\n",
    }
    make(tmp_path / "src", files)
    assert drafted(tmp_path, Path("src"), "--entry", "train.py")["script"]["hyperparameters"] == {"epochs": 2}
    text = (tmp_path / "job.yaml").read_text()
    assert "    # lr: 0.1 # the script does not accept the form in which SageMaker passes it" in text


def test_options_above_the_service_limit_are_comments(tmp_path: Path) -> None:
    options = "".join(f"p.add_argument('--o{number}', type=int, default=1)\n" for number in range(120))
    make(tmp_path / "src", {"train.py": f"{TORCH}p = None\n{options}"})
    assert len(drafted(tmp_path, Path("src"))["script"]["hyperparameters"]) == 90
    assert "    # o119: 1 # SageMaker allows at most 100" in (tmp_path / "job.yaml").read_text()


# Choice of the script


def test_training_script_is_found(tmp_path: Path) -> None:
    files = {
        "prepare.py": "if __name__ == '__main__':\n    pass\n",
        "model.py": "import torch\n",
        "train.py": TORCH,
        "evaluate.py": TORCH,
        "test_train.py": TORCH,
        "tools/train.py": TORCH,
    }
    make(tmp_path / "src", files)
    ran = run(tmp_path, "init", "src")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert data(tmp_path / "job.yaml")["script"]["entry"] == "train.py"


def test_script_with_a_relative_import_is_found_last(tmp_path: Path) -> None:
    make(tmp_path / "src", {"train.py": f"from . import model\n{TORCH}", "model.py": "", "tools/fit.py": TORCH})
    assert run(tmp_path, "init", "src").returncode == 0
    assert data(tmp_path / "job.yaml")["script"]["entry"] == "tools/fit.py"


def test_entry_can_be_relative_to_either_folder(tmp_path: Path) -> None:
    make(
        tmp_path, {"src/train.py": TORCH, "src/deep/other.py": TORCH, "src/.smdpignore": "left.py\n", "src/left.py": ""}
    )
    for entry in ("deep/other.py", "./deep//other.py", "src/deep/other.py"):
        assert run(tmp_path, "init", "src", "--entry", entry, "--force").returncode == 0
        assert data(tmp_path / "job.yaml")["script"]["entry"] == "deep/other.py"
    ran = run(tmp_path, "init", "src", "--entry", "trian.py", "--force")
    assert ran.returncode == ExitCode.USAGE
    assert "did you mean train.py?" in ran.stderr
    ran = run(tmp_path, "init", "src", "--entry", "left.py", "--force")
    assert ran.returncode == ExitCode.USAGE
    assert ".smdpignore excludes left.py" in ran.stderr


def test_python_2_script_is_refused_with_its_line(tmp_path: Path) -> None:
    make(tmp_path / "src", {"train.py": "import torch\nprint 'x'\n"})
    refused = run(tmp_path, "init", "src")
    assert refused.returncode == ExitCode.JOB_FILE_REFUSED
    assert "train.py, line 2: not Python 3" in refused.stderr
    named = run(tmp_path, "init", "src", "--entry", "train.py")
    assert named.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP430]: train.py has a syntax error: Missing parentheses in call to 'print'" in named.stderr
    assert " --> src/train.py:2:1" in named.stderr


def test_without_a_terminal_the_first_candidate_is_used(tmp_path: Path) -> None:
    for arguments in ([], ["--yes"]):
        ran = run(tmp_path, "init", SCRIPTS / "two_scripts", "--force", *arguments)
        assert ran.returncode == 0
        assert "using train_a.py; other candidates: train_b.py (choose with --entry FILE)" in ran.stderr
        assert data(tmp_path / "job.yaml")["script"]["entry"] == "train_a.py"


@pytest.mark.parametrize(("keys", "entry"), [("2\r", "train_b.py"), ("\r", "train_a.py"), ("7\r2\r", "train_b.py")])
def test_user_chooses_among_several_scripts(tmp_path: Path, keys: str, entry: str) -> None:
    code, text = on_terminal(
        tmp_path, ["init", str(SCRIPTS / "two_scripts")], "Which one is the training script? [1]: ", keys
    )
    assert code == 0, text
    assert data(tmp_path / "job.yaml")["script"]["entry"] == entry


def test_ctrl_c_at_the_question_writes_nothing(tmp_path: Path) -> None:
    code, _ = on_terminal(
        tmp_path, ["init", str(SCRIPTS / "two_scripts")], "Which one is the training script? [1]: ", CTRL_C
    )
    assert code == ExitCode.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_yes_option_asks_nothing_on_a_terminal(tmp_path: Path) -> None:
    code, text = on_terminal(tmp_path, ["init", str(SCRIPTS / "two_scripts"), "--yes"], "next: ", "")
    assert code == 0
    assert "Which" not in text


CTRL_C = "\x03"


def on_terminal(folder: Path, arguments: list[str], question: str, keys: str) -> tuple[int, str]:
    """The exit code and the screen of the command on a terminal, after ``keys`` are typed at ``question``."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(LAUNCHER, [str(LAUNCHER), *arguments], clean_environment(TERM="xterm", COLUMNS="100"))
    text, typed, deadline = "", False, time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, text
        if not select.select([terminal], [], [], 1)[0]:
            if typed and keys == CTRL_C:  # Python may miss a Ctrl-C just before it starts to read: press it again
                os.write(terminal, keys.encode())
            continue
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        text += read.decode(errors="replace")
        if question in text and keys and not typed:
            typed = True
            wait_until_asleep(pid, deadline)
            os.write(terminal, keys.encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def wait_until_asleep(pid: int, deadline: float) -> None:
    """Wait until the process waits for a key: Python misses a Ctrl-C just before it starts to read."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Refusals


def test_existing_file_is_overwritten_only_with_force(tmp_path: Path) -> None:
    make(tmp_path, {"src/train.py": TORCH, "job.yaml": "mine"})
    ran = run(tmp_path, "init", "src", "--yes")
    assert ran.returncode == ExitCode.REFUSED
    assert "--force" in ran.stderr
    assert (tmp_path / "job.yaml").read_text() == "mine"
    assert run(tmp_path, "init", "src", "--force").returncode == 0
    assert data(tmp_path / "job.yaml")["schema"] == 1
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    assert run(tmp_path, "init", "src", "--output", "gone.yaml").returncode == ExitCode.REFUSED


def test_folder_without_a_training_script_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "empty", {"notes.txt": "", "prepare.py": "print(1)"})
    ran = run(tmp_path, "init", "empty")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP402]: no script in empty imports PyTorch or TensorFlow" in ran.stderr
    assert "--entry FILE" in ran.stderr
    assert not (tmp_path / "job.yaml").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere"],
        ["file"],
        [".", "--name", "a_b"],
        [".", "--engine", "other"],
        [".", "--entry", "none.py"],
        ["a", "b"],
    ],
)
def test_invalid_argument_is_a_usage_error(tmp_path: Path, arguments: list[str]) -> None:
    make(tmp_path, {"train.py": TORCH, "file": ""})
    ran = run(tmp_path, "init", *arguments)
    assert ran.returncode == ExitCode.USAGE
    assert "Error: " in ran.stderr
    assert not (tmp_path / "job.yaml").exists()


def test_unwritable_output_gives_environment_error(tmp_path: Path) -> None:
    make(tmp_path, {"train.py": TORCH, "file": ""})
    for output, flag in (("no/job.yaml", "--yes"), ("file/job.yaml", "--yes"), (".", "--force")):
        ran = run(tmp_path, "init", "--output", output, flag)
        assert ran.returncode == ExitCode.ENVIRONMENT, ran.stderr
        assert "cannot be written" in ran.stderr


def test_commands_of_the_guide_succeed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    for script in blocks("docs/how-to/source.md", "sh"):
        ran = shell(script, tmp_path)
        assert ran.returncode == 0, ran.stderr
