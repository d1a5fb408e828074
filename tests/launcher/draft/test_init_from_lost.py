"""`init --from`: what the file does not say in an obvious place is found, or a note reports that it is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode
from tests.support.jobs.init import drafted, notes

CALL = """PyTorch(
    entry_point="train.py", source_dir="src", role="arn:aws:iam::123456789012:role/R", framework_version="2.0.1",
    py_version="py310", instance_count=2, instance_type="ml.p4d.24xlarge",
    distribution={"torch_distributed": {"enabled": True}},
)"""
INPUTS = '{"train": "s3://data/train"}'
SAME_ENTRY = "more['train'] = more['train']\n"
TENSORFLOW = CALL.replace("PyTorch", "TensorFlow").replace("2.0.1", "2.11.0").replace("py310", "py39")
LIBRARY = '{"smdistributed": {"dataparallel": {"enabled": True}}}'


@pytest.mark.parametrize(
    "text",
    [
        f"def make():\n    return {CALL}\nest = make()\nest.fit({INPUTS})\n",
        f"made = {{}}\nfor n in (1, 2):\n    made[n] = {CALL}\n    made[n].fit({INPUTS})\n",
        f"est = {CALL}\nother = {CALL}\nother.fit('s3://data/other')\nstart(est).fit({INPUTS})\n",
        f"est = {CALL}\ntuner = HyperparameterTuner(est, 'loss', {{}})\ntuner.fit({INPUTS})\nx.fit('s3://data/x')\n",
        f"est = {CALL}\nmore = {{}}\nmore['train'] = 's3://data/train'\nest.fit({{**more}})\n",
        f"est = {CALL}\nmore = {INPUTS}\n{SAME_ENTRY * 60}est.fit(more)\n",
        f"est = {CALL}\nmore = {{}}\nmore.update({INPUTS}, **{{}})\nest.fit(**{{'inputs': more}})\n",
    ],
    ids=["function", "mapping", "other estimator", "tuner", "entry", "entry from itself", "update"],
)
def test_inputs_of_the_call_that_starts_the_job_are_its_channels(tmp_path: Path, text: str) -> None:
    ran, job = drafted(tmp_path, "x.py", text)
    assert ran.returncode == 0, ran.stderr
    assert job["channels"] == {"train": {"s3": "s3://data/train"}}
    assert [one for one in notes(ran) if "channels" in one] == []


@pytest.mark.parametrize(
    ("after", "note", "channels"),
    [
        (
            "inputs = {}\nfor name in names:\n    inputs[name] = f's3://data/{name}'\nest.fit(inputs)",
            "channels are not set: the inputs of fit() in line 9",
            None,
        ),
        ("est.fit(inputs_of(x))", "channels are not set: the inputs of fit() in line 6", None),
        ("est.fit(**arguments)", "channels are not set: the inputs of fit() in line 6", None),
        ("est.fit({'a': 's3://data/a', **more})", "some channels are not set: the inputs of fit() in line 6", ["a"]),
    ],
)
def test_inputs_that_cannot_be_read_are_reported(
    tmp_path: Path, after: str, note: str, channels: list[str] | None
) -> None:
    ran, job = drafted(tmp_path, "x.py", f"est = {CALL}\n{after}\n")
    assert f"{note} cannot be read from the file; add them under channels" in notes(ran)
    assert (list(job["channels"]) if "channels" in job else None) == channels


def test_several_calls_that_may_start_the_job_are_reported(tmp_path: Path) -> None:
    text = f"made = [{CALL} for _ in (1, 2)]\nmade[0].fit({INPUTS})\nmade[1].fit({INPUTS})\n"
    ran, job = drafted(tmp_path, "x.py", text)
    assert "channels" not in job
    note = "channels are not set: the calls of fit() are in line 6, line 7; add the inputs of this job under channels"
    assert note in notes(ran)


def test_tuner_is_reported(tmp_path: Path) -> None:
    text = f"est = {CALL}\ntuner = sagemaker.tuner.HyperparameterTuner(est, 'loss', {{}})\ntuner.fit({INPUTS})\n"
    ran, _ = drafted(tmp_path, "x.py", text)
    assert "HyperparameterTuner in line 6 is not converted: write its ranges under sweep" in notes(ran)


def test_trainer_inputs_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    text = """trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/x:1", role="arn:aws:iam::123456789012:role/R",
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.g5.12xlarge", instance_count=hosts), distributed=Torchrun(),
)
trainer.train(input_data_config=[InputData(channel_name="a", data_source="s3://data/a"), *more, one])
"""
    ran, job = drafted(tmp_path, "x.py", text)
    assert notes(ran) == [
        "some channels are not set: the inputs of train() in line 6 cannot be read from the file; "
        "add them under channels",
        "compute.instance_count is not set: `hosts` in line 4 cannot be read from the file",
    ]
    assert list(job["channels"]) == ["a"]


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (CALL.replace('entry_point="train.py"', '"main.py"'), "main.py"),
        ('HuggingFace("py38", "main.py", instance_type="ml.p4d.24xlarge")', "main.py"),
        ('TensorFlow("py39", "2.11.0", entry_point="main.py")', "main.py"),
        ('Estimator(image_uri="x", hyperparameters={"sagemaker_program": "main.py"})', "main.py"),
        (CALL.replace('entry_point="train.py",', ""), "your-script.py"),
        (CALL.replace('"train.py"', "name_of()"), "your-script.py"),
    ],
)
def test_entry_is_read_wherever_the_sdk_accepts_it(tmp_path: Path, text: str, entry: str) -> None:
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["script"]["entry"] == entry
    assert ("script.entry" in filled_in(ran.stdout)) == (entry == "your-script.py")


def filled_in(stdout: str) -> list[str]:
    (line,) = [one for one in stdout.splitlines() if one.startswith("  to fill in ")]
    return line.removeprefix("  to fill in ").split(", ")


def test_archive_of_an_estimator_for_any_image_is_reported(tmp_path: Path) -> None:
    submitted = '{"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://b/source.tar.gz", "epochs": 1}'
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/x:1"
    text = f'Estimator("{image}", "role", 1, instance_type="ml.p3.2xlarge", hyperparameters={submitted})'
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["script"] == {"entry": "train.py", "source": ".", "hyperparameters": {"epochs": 1}}
    assert job["image"] == image
    assert "script.source is the folder of x.py: `'s3://b/source.tar.gz'` is no local folder" in notes(ran)


@pytest.mark.parametrize(
    ("before", "count", "expression"),
    [
        ("", None, "n"),
        ("n = 8\nfor n in (1, 2):\n    pass\n", None, "n"),
        ("n = 3\nn += 1\n", 4, None),
        ("n = 3\n", 3, None),
        ("def make(n=4):\n    return ", 4, None),
        ("n = 9\ndef make(n=4): return ", 4, None),
        ("def make(role, *, n=4):\n    return ", 4, None),
        ("make('r', 8)\ndef make(role, n=4):\n    return ", 8, None),
        ("make(n=8)\nmake()\ndef make(n=4):\n    return ", None, "n"),
        ("make(**settings)\ndef make(n=4):\n    return ", None, "n"),
        ("def make(n):\n    return ", None, "n"),
        ("def make(n=4):\n    make(n + n)\n    return ", None, "n + n"),
        ("def other(n=4):\n    pass\nn = 5\n", 5, None),
        ("n = 5\ndef other(n=4):\n    pass\n", 5, None),
    ],
)
def test_number_of_hosts_is_read_or_to_fill_in(
    tmp_path: Path, before: str, count: int | None, expression: str | None
) -> None:
    ran, job = drafted(tmp_path, "x.py", before + CALL.replace("instance_count=2", "instance_count=n"))
    assert job["compute"].get("instance_count") == count
    assert ("compute.instance_count" in filled_in(ran.stdout)) == (expression is not None)
    assert ('compute needs "instance_count"' in ran.stderr) == (expression is not None)
    line = before.count("\n") + 3
    note = f"compute.instance_count is not set: `{expression}` in line {line} cannot be read from the file"
    assert (note in notes(ran)) == (expression is not None)
    assert (f"  # instance_count: fill in; {expression}\n" in (tmp_path / "job.yaml").read_text()) == (
        expression is not None
    )


@pytest.mark.parametrize(
    ("image", "written"),
    [
        (
            'f"{account}.dkr.ecr.us-west-2.amazonaws.com/my/train:v7"',
            "000000000000.dkr.ecr.us-west-2.amazonaws.com/my/train:v7",
        ),
        (
            '"123456789012.dkr.ecr.us-west-2.amazonaws.com/x:" + tag',
            "000000000000.dkr.ecr.us-west-2.amazonaws.com/x:your-tag",
        ),
        (
            '"763104351884.dkr.ecr.{}.amazonaws.com/pytorch-training:2.5.1-gpu-py311".format(region_of(x))',
            "763104351884.dkr.ecr.xx-placeholder-1.amazonaws.com/pytorch-training:2.5.1-gpu-py311",
        ),
        (
            'f"{account}.dkr.ecr.cn-north-1.amazonaws.com.cn/x:1"',
            "000000000000.dkr.ecr.cn-north-1.amazonaws.com.cn/x:1",
        ),
        ('f"{registry}/x:1"', "000000000000.dkr.ecr.xx-placeholder-1.amazonaws.com/x:1"),
        ("retrieve(x)", "000000000000.dkr.ecr.xx-placeholder-1.amazonaws.com/your-image:your-tag"),
    ],
)
@pytest.mark.parametrize("engine", ["nccl", "native"])
def test_image_that_cannot_be_read_is_to_fill_in(tmp_path: Path, image: str, written: str, engine: str) -> None:
    text = f"{CALL[:-1]} image_uri={image}, output_path='s3://bucket/out').fit({INPUTS})\n"
    ran, job = drafted(tmp_path, "x.py", text, "--engine", engine)
    assert job["image"] == written
    assert "image" in filled_in(ran.stdout)
    assert "image" in [one.field for one in check_job(tmp_path / "job.yaml").placeholders]


def test_location_with_an_unknown_part_is_to_fill_in(tmp_path: Path) -> None:
    text = f"{CALL[:-1]} output_path=f's3://bucket/{{prefix}}/out').fit({INPUTS})\n"
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["output"]["s3"] == "s3://your-bucket/your-prefix/out"
    assert "output.s3" in filled_in(ran.stdout)


@pytest.mark.parametrize(
    ("call", "options", "engine", "action"),
    [
        (TENSORFLOW, [], "smdistributed", "smdistributed.dataparallel.tensorflow (docs/how-to/tensorflow.md)"),
        (CALL, [], "nccl", "torch.distributed (docs/how-to/torch/nccl.md)"),
        (CALL, ["--engine", "smdistributed"], "smdistributed", "smdistributed.dataparallel.torch (docs/how-to/ddp.md)"),
    ],
)
def test_distribution_without_an_engine_is_reported(
    tmp_path: Path, call: str, options: list[str], engine: str, action: str
) -> None:
    mpi = '{"mpi": {"enabled": True, "processes_per_host": 8, "custom_mpi_options": "-verbose --NCCL_DEBUG=INFO"}}'
    text = call.replace('{"torch_distributed": {"enabled": True}}', mpi)
    ran, job = drafted(tmp_path, "x.py", text, *options)
    assert job["engine"] == engine
    note = (
        f"the distribution mpi (Horovod) has no engine in smdp-launch. The job file has engine: {engine}: "
        f"change the script to {action}, or keep the estimator"
    )
    assert note in notes(ran)


@pytest.mark.parametrize(
    ("options", "engine", "note"),
    [
        ([], "smdistributed", "engine: nccl, for scripts with the backend nccl, starts it with torchrun"),
        (["--engine", "nccl"], "nccl", "this engine does not"),
    ],
)
def test_pytorchddp_is_aws_library_and_its_launcher_is_reported(
    tmp_path: Path, options: list[str], engine: str, note: str
) -> None:
    ran, job = drafted(tmp_path, "x.py", CALL.replace("torch_distributed", "pytorchddp"), *options)
    assert job["engine"] == engine
    start = f"engine {engine}: for pytorchddp, the SDK starts the script with mpirun and AWS's library"
    assert [one for one in notes(ran) if one.startswith("engine")] == [f"{start}; {note}"]


@pytest.mark.parametrize(("type_", "engine"), [("ml.g5.12xlarge", "nccl"), ("ml.c5.4xlarge", "gloo")])
def test_pytorchddp_on_a_type_without_aws_library_is_torch_distributed(tmp_path: Path, type_: str, engine: str) -> None:
    text = CALL.replace("torch_distributed", "pytorchddp").replace("ml.p4d.24xlarge", type_)
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["engine"] == engine
    (note,) = [one for one in notes(ran) if one.startswith("engine")]
    assert f"AWS's library, which does not support {type_}; engine: {engine} starts it with torchrun" in note
    assert "SMDP301" not in ran.stderr


def test_long_value_in_a_note_is_cut_with_dots(tmp_path: Path) -> None:
    text = CALL.replace('{"torch_distributed": {"enabled": True}}', f"settings[{'x' * 100!r}]")
    ran, _ = drafted(tmp_path, "x.py", text)
    (note,) = [one for one in notes(ran) if one.startswith("engine")]
    assert note.endswith("xxx...`")


@pytest.mark.parametrize(
    ("more", "parameters", "where"),
    [
        (f"distribution={LIBRARY}", None, "an S3 location"),
        ("distribution={'mpi': {'enabled': True}}", None, "/opt/ml/model"),
        ("model_dir=False", None, None),
        ("model_dir='/opt/ml/model'", {"model_dir": "/opt/ml/model"}, None),
        ("hyperparameters={'model_dir': '/opt/ml/model'}", {"model_dir": "/opt/ml/model"}, None),
    ],
)
def test_model_dir_of_a_tensorflow_estimator_is_reported(
    tmp_path: Path, more: str, parameters: dict[str, Any] | None, where: str | None
) -> None:
    text = TENSORFLOW.replace('distribution={"torch_distributed": {"enabled": True}}', more)
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["script"].get("hyperparameters") == parameters
    note = (
        f"model_dir is not set: the SDK passes {where} under this name; set script.hyperparameters.model_dir, "
        "or save to SM_MODEL_DIR"
    )
    assert [one for one in notes(ran) if "model_dir" in one] == ([note] if where else [])


def test_secrets_become_comments(tmp_path: Path) -> None:
    text = f"""hf_token = "correct-horse-battery"
hyper = {{"epochs": 1, "wandb-key": os.environ["WANDB_API_KEY"], "access": f"x-{{hf_token}}", "api_key": "{"z" * 20}"}}
est = {CALL[:-1]} hyperparameters=hyper, environment={{"HF_TOKEN": hf_token, "KEY_FILE": "/run/secrets/key"}})
est.fit({INPUTS})
"""
    ran, job = drafted(tmp_path, "x.py", text)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert job["script"]["hyperparameters"] == {"epochs": 1}
    assert job["environment"] == {"KEY_FILE": "/run/secrets/key"}
    written = (tmp_path / "job.yaml").read_text()
    for name, indent in (("wandb-key", 4), ("access", 4), ("api_key", 4), ("HF_TOKEN", 2)):
        line = f"{' ' * indent}# {name}: a secret; let the script read it from AWS Secrets Manager\n"
        assert line in written
    assert "script.hyperparameters.wandb-key is not set: a secret; let the script read it from AWS Secrets Manager" in (
        notes(ran)
    )
    assert [one for one in ("correct-horse", "zzzz") if one in written + ran.stdout + ran.stderr] == []


def test_unpacked_values_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    text = f"est = {CALL[:-1]} hyperparameters={{'epochs': 1, **more}}, **settings)\nest.fit({INPUTS})\n"
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["script"]["hyperparameters"] == {"epochs": "your-epochs"}  # more may have an entry of this name
    assert notes(ran) == [
        "script.hyperparameters may lack entries: `**more` cannot be read from the file",
        "not taken over: **settings in line 5",
    ]


def test_changes_of_a_mapping_apply_in_the_order_of_the_lines(tmp_path: Path) -> None:
    text = f"""hp = {{"lr": 0.1, "wd": 0}}
def never_called():
    hp["lr"] = 99
def called():
    hp["wd"] = 1
called()
with open("x") as file:
    hp["epochs"] = 7
hp["epochs"] = 9
est = {CALL[:-1]} hyperparameters=hp)
est.fit({INPUTS})
"""
    _, job = drafted(tmp_path, "x.py", text)
    assert job["script"]["hyperparameters"] == {"lr": 0.1, "wd": 1, "epochs": 9}


def test_call_of_another_module_gives_a_parameter_no_value(tmp_path: Path) -> None:
    text = f"""subprocess.run("aws configure list", shell=True)
def run(type_="ml.p3dn.24xlarge"):
    est = {CALL.replace('"ml.p4d.24xlarge"', "type_")}
    est.fit({INPUTS})
"""
    _, job = drafted(tmp_path, "x.py", text)
    assert job["compute"]["instance_type"] == "ml.p3dn.24xlarge"


def test_secrets_of_a_known_form_are_in_no_comment_or_note(tmp_path: Path) -> None:
    secret = f"hf_{'aB' * 18}"
    values = f"{{'cfg': make('{secret}'), 'deep': {{'key1': open_('{secret}')}}}}"
    text = f"""est = {CALL[:-1]} hyperparameters={values}, tags=pick("{secret}"), subnets=pick("{secret}"))
est.fit({INPUTS})
"""
    text = text.replace('entry_point="train.py"', f'entry_point=pick("{secret}")')
    ran, _ = drafted(tmp_path, "x.py", text)
    shown = (tmp_path / "job.yaml").read_text() + ran.stdout + ran.stderr
    assert secret not in shown
    assert "Unknown(" not in shown
