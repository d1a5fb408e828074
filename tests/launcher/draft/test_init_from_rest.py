"""`init --from`: every argument of the SDK's calls and objects is in the job file, or a note has its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode
from tests.support import command
from tests.support.jobs.init import drafted, notes

CALL = """est = PyTorch(
    entry_point="train.py", source_dir="src", role="arn:aws:iam::123456789012:role/R", framework_version="2.0.1",
    py_version="py310", instance_count=2, instance_type="ml.p4d.24xlarge", hyperparameters={"epochs": 2, "lr": 0.1},
    distribution={"torch_distributed": {"enabled": True}}, max_run=3600,
    MORE
)
"""
TRAINER = """trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/x:1", role="arn:aws:iam::123456789012:role/R",
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.g5.12xlarge", instance_count=2), distributed=Torchrun(),
    hyperparameters={"epochs": 2},
)
"""
INPUT = 'trainer.train(input_data_config=[InputData(channel_name="a", data_source="s3://data/a")])\n'


def rest(ran: Any) -> list[str]:
    """What the note lists as not taken over."""
    prefix = "not taken over: "
    return [each for one in notes(ran) if one.startswith(prefix) for each in one.removeprefix(prefix).split(", ")]


def from_estimator(folder: Path, after: str, more: str = "") -> tuple[Any, Any]:
    return drafted(folder, "x.py", CALL.replace("MORE", more) + after)


def test_changes_of_an_estimator_before_its_start_are_applied(tmp_path: Path) -> None:
    after = """est.set_hyperparameters(epochs=90)
est.instance_count = 8; est.max_run = 60
est.environment = {"A": "a"}
est.environment["B"] = "b"
est.environment.update({"C": "c"}, D="d")
est.fit({"train": "s3://data/train"})
est.set_hyperparameters(epochs=5)
est.max_run = 70
est.max_wait *= 2
"""
    ran, job = from_estimator(tmp_path, after)
    assert (ran.returncode, notes(ran)) == (ExitCode.OK, [])
    assert job["script"]["hyperparameters"] == {"epochs": 90, "lr": 0.1}
    assert (job["compute"]["instance_count"], job["compute"]["max_run"]) == (8, 60)
    assert job["environment"] == {"A": "a", "B": "b", "C": "c", "D": "d"}


@pytest.mark.parametrize(
    "text",
    [
        f"def make():\n    {CALL}    return est\nbig = make()\nbig.max_run = 60\nbig.fit()\n",
        f"class Job:\n  def run(self):\n    self.{CALL}    self.est.max_run = 60\n    self.est.fit()\n",
        f"made = {{}}\nmade['a'] = {CALL.removeprefix('est = ')}made['a'].max_run = 60\nmade['a'].fit()\n",
        f"{CALL}est.max_run = 60\n",
    ],
    ids=["function", "attribute", "entry", "without a start"],
)
def test_changed_estimator_is_found_under_its_name(tmp_path: Path, text: str) -> None:
    ran, job = drafted(tmp_path, "x.py", text.replace("MORE", ""))
    assert (job["compute"]["max_run"], rest(ran)) == (60, [])


def test_changes_that_cannot_be_applied_are_reported(tmp_path: Path) -> None:
    after = """est.max_run *= 2
if big:
    est.instance_count = 8
est.tags.append({"Key": "a", "Value": "b"})
del est.environment["A"]
est.deep.er.value = 1
est.a, other = 1, 2
est.update_profiler(system_monitor_interval_millis=500)
setattr(est, "max_run", 60)
est.set_hyperparameters(epochs=EPOCHS, **loaded())
est.latest_training_job.wait()
est.fit()
"""
    ran, job = from_estimator(tmp_path, after)
    assert rest(ran) == [
        "`est.max_run` in line 7",
        "`est.instance_count` in line 9",
        "`est.tags.append` in line 10",
        "`est.environment['A']` in line 11",
        "`est.deep.er.value` in line 12",
        "`est.a` in line 13",
        "`est.update_profiler` in line 14",
        "`est.set_` in line 15",
    ]
    assert (job["compute"]["max_run"], job["compute"]["instance_count"]) == (3600, 2)
    assert job["script"]["hyperparameters"] == {"epochs": "your-epochs", "lr": "your-lr"}
    assert "script.hyperparameters may lack entries: `**loaded()` cannot be read from the file" in notes(ran)


def test_estimator_that_gets_the_name_later_does_not_change_the_first(tmp_path: Path) -> None:
    other = CALL.replace("MORE", "")
    _, job = from_estimator(tmp_path, f"est.max_run = 60\nx = [est]\n{other}est.max_run = 70\nest.fit()\nest.fit()\n")
    assert job["compute"]["max_run"] == 60


@pytest.mark.parametrize(
    "made",
    [
        'TrainingInput("s3://data/a", "ShardedByS3Key", "Gzip", "text/csv", "RecordIO", "AugmentedManifestFile",'
        ' ["data"], "Pipe", ["x"], None, ShuffleConfig(5))',
        's3_input("s3://data/a", "ShardedByS3Key", "Gzip", "text/csv", "RecordIO", "AugmentedManifestFile", "Pipe",'
        ' ["x"], None, ShuffleConfig(seed=5))',
        'TrainingInput(s3_data="s3://data/a", distribution="ShardedByS3Key", compression="Gzip",'
        ' content_type="text/csv", record_wrapping="RecordIO", s3_data_type="AugmentedManifestFile",'
        ' instance_groups=["data"], input_mode="Pipe", attribute_names=["x"], shuffle_config=ShuffleConfig(seed=5))',
    ],
    ids=["positional", "version 1", "named"],
)
def test_every_argument_of_a_training_input_is_read(tmp_path: Path, made: str) -> None:
    ran, job = from_estimator(tmp_path, f"est.fit({{'a': {made}}})\n")
    assert rest(ran) == []
    groups = {} if made.startswith("s3_input") else {"groups": ["data"]}
    assert job["channels"]["a"] == {
        "s3": "s3://data/a",
        "distribution": "ShardedByS3Key",
        "compression": "Gzip",
        "content_type": "text/csv",
        "record_wrapping": "RecordIO",
        "data_type": "AugmentedManifestFile",
        "mode": "Pipe",
        "attributes": ["x"],
        "shuffle": 5,
        **groups,
    }


def test_arguments_of_inputs_without_a_key_are_reported(tmp_path: Path) -> None:
    after = """a = TrainingInput("s3://data/a", hub_access_config={"x": 1}, target_attribute_name="y", compression=GZIP)
a.config["ContentType"] = "text/csv"
b = FileSystemInput("fs-0123456789abcdef0", "FSxLustre", "/fsx/data", "rw", "text/csv")
est.fit({"a": a, "b": b}, job_name="mine", experiment_config={"TrialName": "t"}, wait=False, logs=False)
"""
    ran, job = from_estimator(tmp_path, after)
    assert rest(ran) == [
        "TrainingInput.config['ContentType'] in line 8",
        "TrainingInput.hub_access_config in line 7",
        "TrainingInput.target_attribute_name in line 7",
        "argument 5 of FileSystemInput in line 9",
        "experiment_config in line 10",
        "job_name in line 10",
    ]
    assert "channels.a.compression is not set: `GZIP` cannot be read from the file" in notes(ran)
    assert job["channels"]["b"] == {"fsx": "fs-0123456789abcdef0", "path": "/fsx/data", "access": "rw"}


@pytest.mark.parametrize(
    ("more", "reported"),
    [
        ("disable_profiler=True, debugger_hook_config=False, profiler_config=None, container_log_level=20", []),
        ("debugger_hook_config=DebuggerHookConfig(s3_output_path='s3://b/x')", ["debugger_hook_config in line 5"]),
        ("profiler_config=ProfilerConfig(system_monitor_interval_millis=500)", ["profiler_config in line 5"]),
        ("container_log_level=10", ["container_log_level in line 5"]),
        ("sagemaker_session=session, rules=[Rule.sagemaker(x)]", ["rules in line 5"]),
        ("rules=[], input_mode='File', enable_sagemaker_metrics=None", []),
        ("input_mode='Pipe'", ["input_mode in line 5"]),
    ],
)
def test_switches_have_no_effect_only_at_the_launchers_values(tmp_path: Path, more: str, reported: list[str]) -> None:
    ran, _ = from_estimator(tmp_path, "est.fit()\n", more)
    assert rest(ran) == reported


@pytest.mark.parametrize(
    ("start", "reported"),
    [
        ("est.fit('s3://data/a', True, 'All')", []),
        ("est.fit('s3://data/a', False, 'All', 'mine', None)", ["job_name in line 7"]),
        ("est.fit('s3://data/a', True, 'All', None, None, 5)", ["argument 6 of fit in line 7"]),
        ("t = HyperparameterTuner(est)\nt.fit('s3://data/a', 'mine')", ["argument 2 of fit in line 8"]),
    ],
)
def test_positional_arguments_of_fit_are_reported_by_name(tmp_path: Path, start: str, reported: list[str]) -> None:
    ran, _ = from_estimator(tmp_path, f"{start}\n")
    assert rest(ran) == reported


def test_switches_and_lists_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    more = "use_spot_instances=args.spot, disable_output_compression=plain, tags=[{'Key': 'a', 'Value': 'b'}, *TAGS]"
    ran, job = from_estimator(tmp_path, "est.fit()\n", more)
    assert [one for one in notes(ran) if "cannot be read" in one] == [
        "output.compression is not set: `plain` cannot be read from the file",
        "spot is not set: `args.spot` cannot be read from the file",
        "tags may lack entries: `*TAGS` cannot be read from the file",
    ]
    assert job["tags"] == {"a": "b"}


def test_positional_arguments_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    text = 'PyTorch("train.py", *rest, "x", source_dir="src")\nHuggingFace("py38", *[None] * 8)\n'
    ran, job = drafted(tmp_path, "x.py", text)
    assert rest(ran) == ["'x' in line 1", "*rest in line 1"]
    assert job["script"]["entry"] == "train.py"


def test_arguments_after_the_known_positions_are_reported(tmp_path: Path) -> None:
    text = 'PyTorch("train.py", "2.0.1", "py310", "src", {}, None, None, compiler(), source_dir="src")\n'
    ran, _ = drafted(tmp_path, "x.py", text)
    assert rest(ran) == ["argument 1 of PyTorch in line 1"]


def test_options_of_mpirun_are_reported_with_another_engine(tmp_path: Path) -> None:
    text = CALL.replace("torch_distributed", "pytorchddp").replace("True}", "True, 'custom_mpi_options': '-x A'}")
    ran, _ = drafted(tmp_path, "x.py", text.replace("MORE", ""), "--engine", "nccl")
    assert "engine_options.custom_mpi_options is not set: engine nccl has no such option" in notes(ran)


def test_objects_of_a_trainer_are_read(tmp_path: Path) -> None:
    text = (
        TRAINER.replace('instance_type="ml.g5.12xlarge", instance_count=2', "instance_groups=[gpus, cpus]")
        + """channel = Channel(
    channel_name="a", compression_type="Gzip", record_wrapper_type="RecordIO", shuffle_config=ShuffleConfig(seed=4),
    input_mode="Pipe", content_type="text/csv",
    data_source=DataSource(s3_data_source=S3DataSource(
        s3_uri="s3://data/a", s3_data_type="S3Prefix", instance_group_names=["cpus"],
    )),
)
trainer.hyperparameters["epochs"] = 9
trainer.compute.volume_size_in_gb = 300
trainer.with_checkpoint_config(CheckpointConfig(s3_uri="s3://data/c", local_path="/opt/ml/c"))
trainer.train(input_data_config=[channel])
"""
    )
    groups = """gpus = InstanceGroup(instance_group_name="gpus", instance_type="ml.p4d.24xlarge", instance_count=2)
cpus = InstanceGroup(instance_group_name="cpus", instance_type="ml.c5.4xlarge", instance_count=1)
"""
    ran, job = drafted(tmp_path, "x.py", groups + text)
    assert notes(ran) == ["the group gpus trains: the call names no group in its distribution"]
    assert job["script"]["hyperparameters"] == {"epochs": 9}
    assert job["compute"] == {
        "instance_type": "ml.p4d.24xlarge",
        "instance_count": 2,
        "group_name": "gpus",
        "other_groups": {"cpus": {"instance_type": "ml.c5.4xlarge", "instance_count": 1}},
        "volume_gb": 300,
        "max_run": 3600,
    }
    assert job["channels"]["a"] == {
        "s3": "s3://data/a",
        "mode": "Pipe",
        "compression": "Gzip",
        "record_wrapping": "RecordIO",
        "content_type": "text/csv",
        "shuffle": 4,
        "groups": ["cpus"],
    }
    assert job["checkpoint"] == {"s3": "s3://data/c", "path": "/opt/ml/c", "shared": True}


@pytest.mark.parametrize(
    ("location", "s3", "is_shared"),
    [
        ('"s3://data/c/run7"', "s3://data/c/run7", True),
        ('f"s3://{session.default_bucket()}/c/run7"', "s3://your-bucket/c/run7", True),
        ('f"s3://data/c/{time.time()}"', "s3://your-bucket/c/your-time-time", False),
        ("session.location()", "s3://your-bucket/checkpoints", False),
    ],
)
def test_known_path_of_checkpoints_is_shared(tmp_path: Path, location: str, s3: str, is_shared: bool) -> None:
    text = f"""estimator = PyTorch(
    entry_point="train.py", source_dir="src", role="training", framework_version="2.0.1", py_version="py310",
    instance_count=1, instance_type="ml.p4d.24xlarge", checkpoint_s3_uri={location},
)
estimator.fit("s3://data/a")
"""
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["checkpoint"] == {"s3": s3} | ({"shared": True} if is_shared else {})
    assert ("the job adds its name" in ran.stdout + ran.stderr) != is_shared


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("Torchrun()", "Torchrun(process_count_per_node=4)", ["Torchrun.process_count_per_node in line 4"]),
        (
            'entry_script="train.py"',
            'entry_script="train.py", requirements="req.txt", ignore_patterns=["x"]',
            ["SourceCode.ignore_patterns in line 3", "SourceCode.requirements in line 3"],
        ),
        ('entry_script="train.py"', 'entry_script="train.py", requirements="requirements.txt"', []),
        ('entry_script="train.py"', 'entry_script="train.py", requirements="./requirements.txt"', []),
        ("distributed", "training_mode=Mode.SAGEMAKER_TRAINING_JOB, training_input_mode='File', distributed", []),
        ("distributed", "training_mode=Mode.LOCAL_CONTAINER, distributed", ["training_mode in line 4"]),
        ('s3://data/a")]', 's3://data/a")], True, False', []),
        ("instance_count=2", "instance_count=2, later=1", ["Compute.later in line 4"]),
        ("distributed", "networking=Networking(later=1), distributed", ["Networking.later in line 4"]),
        ("distributed", "stopping_condition=StoppingCondition(x=1), distributed", ["StoppingCondition.x in line 4"]),
        (
            "distributed",
            "output_data_config=OutputDataConfig(s3_output_path='s3://b/o', later=1), distributed",
            ["OutputDataConfig.later in line 4"],
        ),
        ('data_source="s3', 'later=1, data_source="s3', ["InputData.later in line 7"]),
        (
            'data_source="s3://data/a"',
            "data_source=S3DataSource(s3_uri='s3://data/a', model_access_config=ModelAccessConfig(accept_eula=True))",
            ["S3DataSource.model_access_config in line 7"],
        ),
        (
            "trainer.train(",
            "trainer.with_remote_debug_config(x)\ntrainer.train(",
            ["with_remote_debug_config in line 7"],
        ),
    ],
)
def test_arguments_in_the_objects_of_a_trainer_are_reported(
    tmp_path: Path, old: str, new: str, reported: list[str]
) -> None:
    ran, _ = drafted(tmp_path, "x.py", (TRAINER + INPUT).replace(old, new))
    assert rest(ran) == reported


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("torchrun --nproc_per_node 2 train.py --x 1", "`torchrun --nproc_per_node 2 train.py --x 1`"),
        ("python train.py --api-key correct-horse", "`...`"),
    ],
)
def test_command_of_a_trainer_is_an_entry_to_fill_in(tmp_path: Path, command: str, shown: str) -> None:
    ran, job = drafted(tmp_path, "x.py", TRAINER.replace('entry_script="train.py"', f'command="{command}"'))
    assert notes(ran) == [f"script.entry: the job runs a script, and not the command {shown} in line 3"]
    assert job["script"]["entry"] == "your-script.py"
    assert f"entry: your-script.py # fill in; the command is {shown}\n" in (tmp_path / "job.yaml").read_text()


def test_model_parallelism_of_a_trainer_is_reported(tmp_path: Path) -> None:
    ran, _ = drafted(tmp_path, "x.py", TRAINER.replace("Torchrun()", "Torchrun(smp=SMP(tensor_parallel_degree=4))"))
    assert notes(ran) == ["engine nccl: the job file has nothing like `Torchrun(...)`"]


def test_file_of_hyperparameters_is_reported(tmp_path: Path) -> None:
    ran, job = drafted(tmp_path, "x.py", TRAINER.replace('{"epochs": 2}', '"hyperparameters.json"'))
    assert notes(ran) == ["script.hyperparameters is not set: `'hyperparameters.json'` cannot be read from the file"]
    assert "hyperparameters" not in job["script"]


def test_numbers_as_keys_become_text(tmp_path: Path) -> None:
    ran, job = from_estimator(tmp_path, "est.set_hyperparameters(steps={1: [{2: 3}]})\nest.fit()\n")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert job["script"]["hyperparameters"]["steps"] == {"1": [{"2": 3}]}


@pytest.mark.parametrize(
    "folder",
    [
        'os.path.join(os.getcwd(), "src")',
        'f"{os.getcwd()}/src"',
        'os.path.join(os.path.dirname(os.path.abspath(__file__)), "src")',
    ],
)
def test_folder_of_the_file_is_known(tmp_path: Path, folder: str) -> None:
    text = f"import os\n{CALL.replace('MORE', '')}est.fit()\n".replace('source_dir="src"', f"source_dir={folder}")
    ran, job = drafted(tmp_path, "x.py", text)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert job["script"]["source"] == "src"


def test_image_of_aws_gives_version_and_region(tmp_path: Path) -> None:
    image = 'sagemaker.image_uris.retrieve("pytorch", region="us-west-2", version="2.6.0", image_scope="training")'
    text = TRAINER.replace('"123456789012.dkr.ecr.us-east-1.amazonaws.com/x:1"', image) + INPUT
    ran, job = drafted(tmp_path, "x.py", f"import sagemaker\n{text}")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert (job["framework"]["version"], job["region"], "image" in job) == ("2.6.0", "us-west-2", False)
    assert rest(ran) == []


def test_recipe_is_named(tmp_path: Path) -> None:
    recipe = "one = ModelTrainer.from_recipe(training_recipe='x', compute=c)\n"
    ran, job = drafted(tmp_path, "x.py", recipe + TRAINER + INPUT)
    assert "others: line 1 (from_recipe, which is not converted)" in " ".join(notes(ran))
    assert job["script"]["entry"] == "train.py"
    (tmp_path / "y.py").write_text(f"from sagemaker.train import ModelTrainer\n{recipe}")
    ran = command.run(tmp_path, "init", "--from", "y.py", "--force")
    assert "line 2 (from_recipe, which is not converted)" in ran.stderr


@pytest.mark.parametrize("path", ['""', '"/opt/ml/checkpoints"'])
def test_local_path_of_checkpoints_without_a_location_is_left_out(tmp_path: Path, path: str) -> None:
    ran, job = from_estimator(tmp_path, "est.fit()\n", f"checkpoint_local_path={path}, checkpoint_s3_uri=None,")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "checkpoint" not in job
    assert any("checkpoint is not set" in one for one in notes(ran)) is (path != '""')
