"""A job gives the same request, field by field, from YAML, flags, a mapping and a JobSpec."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from ruamel.yaml import YAML

import smdp_launch
from smdp_launch import JobSpec
from smdp_launch.cli.main import smdp_launch as command_line
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.schema import element, fields, model_of
from smdp_launch.request.build import PLAN_TAG
from tests.conftest import JOB, Command, write_job

Job = dict[str, Any]

BASE: Job = YAML(typ="safe", pure=True).load(JOB)
FILE_SYSTEM = "fs-0123456789abcdef0"
VPC = {"subnets": ["subnet-01234567"], "security_groups": ["sg-89abcdef"]}
PLANS = "arn:aws:sagemaker:us-east-1:123456789012:training-plan"
AWS_LIBRARY = {"engine": "smdistributed", "image": None}
MANIFEST = {"s3": "s3://bucket/train.manifest", "mode": "Pipe", "data_type": "AugmentedManifestFile"}
AUGMENTED = MANIFEST | {"attributes": ["image-ref", "label"], "record_wrapping": "RecordIO"}
DESCRIBED = {
    "fsx": FILE_SYSTEM,
    "path": "/fsx/data",
    "deployment_type": "PERSISTENT_2",
    "throughput_per_unit": 250,
    "capacity_gib": 2400,
}


def merged(job: Mapping[str, Any], said: Mapping[str, Any]) -> Job:
    made = dict(job)
    for key, value in said.items():
        present = made.get(key)
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(present, value) if isinstance(present, dict) and isinstance(value, dict) else value
    return made


#: A warning says that the script does not read its group.
GROUPS: Job = {
    "compute": {"other_groups": {"data": {"instance_type": "ml.c5.18xlarge", "instance_count": 1}}},
    "silence": ["SMDP336"],
}

SWEEP: Job = {
    "objective": {"metric": "loss", "goal": "minimize"},
    "ranges": {"continuous": {"lr": {"min": 0.001, "max": 0.1}}},
    "trials": 20,
}


def swept(changed: Job) -> Job:
    """The sections of a job with a sweep, with these values in place of others."""
    return {"sweep": merged(SWEEP, changed), "metrics": {"loss": "loss=([0-9.]+)"}}


SERVE = {"entry": "inference.py", "instance_type": "ml.m5.large"}
BATCH = SERVE | {"kind": "batch", "input": "s3://bucket/new"}

#: Each field with values for it and for the fields that it needs. None removes a key.
CASES: dict[str, Job] = {
    "schema": {"schema": 1},
    "name": {"name": "other"},
    "engine": AWS_LIBRARY,
    "policy": {"policy": "extended", "compute": {"instance_type": "ml.p4de.24xlarge"}},
    "framework.name": AWS_LIBRARY | {"framework": {"name": "tensorflow", "version": "2.11.0"}},
    "framework.version": AWS_LIBRARY | {"framework": {"version": "1.13.1"}},
    "framework.python": AWS_LIBRARY | {"framework": {"version": "1.13.1", "python": "3.9"}},
    "framework.transformers": AWS_LIBRARY | {"framework": {"version": "1.10.2", "transformers": "4.17.0"}},
    "image": {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:2.0.1-cu118"},
    "script.entry": {"script": {"entry": "lib/run.py"}},
    "script.source": {"script": {"source": "more"}},
    "script.source_limit_mb": {"script": {"source_limit_mb": 7}},
    "script.hyperparameters.NAME": {
        "script": {"hyperparameters": {"text": "a b", "yes": True, "rate": 0.1, "list": [1, "2"], "model.depth": 3}}
    },
    "compute.instance_type": {"compute": {"instance_type": "ml.p3dn.24xlarge"}},
    "compute.instance_count": {"compute": {"instance_count": 4}},
    "compute.other_groups.NAME": GROUPS,
    "compute.group_name": merged(GROUPS, {"compute": {"group_name": "gpus"}}),
    "compute.fallback_types": {"compute": {"fallback_types": ["ml.p3dn.24xlarge"]}},
    "compute.volume_gb": {"compute": {"volume_gb": 99}},
    "compute.max_run": {"compute": {"max_run": 3601}},
    "compute.max_pending": {"compute": {"max_pending": 1801}},
    "compute.training_plan": {"compute": {"training_plan": f"{PLANS}/spring"}},
    "compute.keep_alive": {"compute": {"keep_alive": 61}},
    "compute.retries": {"compute": {"retries": 3}},
    "spot.max_wait": {"spot": {"max_wait": 7200}, "checkpoint": {"s3": "s3://bucket/checkpoints"}},
    "channels.NAME.s3": {"channels": {"train": {"s3": "s3://bucket/other"}, "test": {"s3": "s3://bucket/test"}}},
    "channels.NAME.mode": {"channels": {"train": {"mode": "FastFile"}}},
    "channels.NAME.distribution": {"channels": {"train": {"distribution": "ShardedByS3Key"}}},
    "channels.NAME.data_type": {"channels": {"train": {"data_type": "ManifestFile", "s3": "s3://bucket/manifest"}}},
    "channels.NAME.groups": merged(GROUPS, {"channels": {"train": {"groups": ["data", "workers"]}}}),
    "channels.NAME.attributes": {"channels": {"train": AUGMENTED}},
    "channels.NAME.shuffle": {"channels": {"train": AUGMENTED | {"shuffle": 5}}},
    "channels.NAME.content_type": {"channels": {"train": {"content_type": "text/csv"}}},
    "channels.NAME.compression": {"channels": {"train": {"mode": "Pipe", "compression": "Gzip"}}},
    "channels.NAME.record_wrapping": {"channels": {"train": {"mode": "Pipe", "record_wrapping": "RecordIO"}}},
    "channels.NAME.fsx": {"channels": {"more": {"fsx": FILE_SYSTEM, "path": "/fsx/data"}}, "network": VPC},
    "channels.NAME.efs": {"channels": {"more": {"efs": FILE_SYSTEM, "path": "/data"}}, "network": VPC},
    "channels.NAME.path": {"channels": {"more": {"efs": FILE_SYSTEM, "path": "/other"}}, "network": VPC},
    "channels.NAME.access": {
        "channels": {"more": {"fsx": FILE_SYSTEM, "path": "/fsx/data", "access": "rw"}},
        "network": VPC,
    },
    "channels.NAME.throughput_mb_s": {
        "channels": {"more": {"fsx": FILE_SYSTEM, "path": "/fsx/data", "throughput_mb_s": 600}},
        "network": VPC,
    },
    "channels.NAME.deployment_type": {
        "channels": {"more": DESCRIBED | {"deployment_type": "PERSISTENT_1", "throughput_per_unit": 50}},
        "network": VPC,
    },
    "channels.NAME.throughput_per_unit": {
        "channels": {"more": DESCRIBED | {"throughput_per_unit": 1000}},
        "network": VPC,
    },
    "channels.NAME.capacity_gib": {"channels": {"more": DESCRIBED | {"capacity_gib": 4800}}, "network": VPC},
    "output.s3": {"output": {"s3": "s3://bucket/elsewhere"}},
    "output.compression": {"output": {"compression": "none"}},
    "checkpoint.s3": {"checkpoint": {"s3": "s3://bucket/checkpoints"}},
    "checkpoint.shared": {"checkpoint": {"s3": "s3://bucket/checkpoints", "shared": True}},
    "checkpoint.path": {"checkpoint": {"s3": "s3://bucket/checkpoints", "path": "/opt/ml/local/state"}},
    "network.require": {"network": {"require": "80%"}},
    "hang.action": {"hang": {"action": "end"}},
    "hang.after": {"hang": {"after": 120.0}},
    "hang.factor": {"hang": {"factor": 20.0}},
    "retries.on": {"retries": {"on": ["hardware", "hang"]}, "checkpoint": {"s3": "s3://bucket/checkpoints"}},
    "retries.at_most": {
        "retries": {"on": ["hang"], "at_most": 5},
        "checkpoint": {"s3": "s3://bucket/checkpoints"},
    },
    "network.subnets": {"network": VPC},
    "network.security_groups": {"network": VPC | {"security_groups": ["sg-0123456789abcdef0", "sg-89abcdef"]}},
    "network.isolated": {"network": {"isolated": True}},
    "network.encrypt_traffic": {"network": {"encrypt_traffic": True}},
    "encryption.volume_key": {
        "compute": {"instance_type": "ml.p3.16xlarge"},
        "encryption": {"volume_key": "alias/volumes"},
    },
    "encryption.output_key": {"encryption": {"output_key": "alias/results"}},
    "environment.NAME": {"environment": {"MY_MODE": "a=b, c", "OTHER": "1"}},
    "tags.NAME": {"tags": {"team": "vision", "cost center": "12"}},
    "metrics.NAME": {"metrics": {"loss": "loss=([0-9.]+)"}},
    "batch.global": {"batch": {"global": 256, "hyperparameter": "batch-size"}},
    "batch.per_gpu": {"batch": {"per_gpu": 8, "hyperparameter": "batch-size"}},
    "batch.hyperparameter": {"batch": {"per_gpu": 8, "hyperparameter": "bs"}},
    "batch.reference_size": {"batch": {"global": 256, "reference_size": 128, "reference_learning_rate": 0.1}},
    "batch.reference_learning_rate": {"batch": {"global": 256, "reference_size": 256, "reference_learning_rate": 0.2}},
    "batch.learning_rate": {
        "batch": {"global": 256, "reference_size": 256, "reference_learning_rate": 0.2, "learning_rate": "rate"},
        "script": {"hyperparameters": {"rate": 0.2}},
    },
    "batch.scaling": {
        "batch": {"global": 256, "reference_size": 64, "reference_learning_rate": 0.2, "scaling": "sqrt"},
    },
    "batch.warmup_steps": {"batch": {"global": 256, "warmup_steps": 5}},
    "amp": {"amp": "fp16"},
    "model.parameters": {"model": {"parameters": 350_000_000}},
    "model.trainable": {"model": {"parameters": 350_000_000, "trainable": 1_000_000}},
    "model.dtype": {"model": {"parameters": 350_000_000, "dtype": "bfloat16"}},
    "model.optimizer": {"model": {"parameters": 350_000_000, "optimizer": "adamw"}},
    "model.sharding": {"model": {"parameters": 350_000_000, "sharding": "parameters"}},
    "engine_options.streams": {"engine_options": {"streams": 3}},
    "engine_options.wire_dtype": {"engine_options": {"wire_dtype": "float16"}},
    "engine_options.piece_kib": {"engine_options": {"piece_kib": 512}},
    "engine_options.operation_timeout_s": {"engine_options": {"operation_timeout_s": 90.5}},
    "engine_options.rendezvous_timeout_s": {"engine_options": {"rendezvous_timeout_s": 60.0}},
    "engine_options.heartbeat_s": {"engine_options": {"heartbeat_s": 2.5}},
    "engine_options.verbose": {"engine_options": {"verbose": True}},
    "engine_options.custom_mpi_options": AWS_LIBRARY | {"engine_options": {"custom_mpi_options": '-x A="b c"'}},
    "overlay.NAME": {"overlay": {"SessionChainingConfig": {"EnableSessionTagChaining": True}}},
    "tracking.tensorboard.s3": {"tracking": {"tensorboard": {"s3": "s3://bucket/boards"}}},
    "tracking.tensorboard.path": {"tracking": {"tensorboard": {"s3": "s3://bucket/boards", "path": "/opt/ml/boards"}}},
    "tracking.mlflow.experiment": {"tracking": {"mlflow": {"experiment": "a b", "uri": "https://mlflow.example.com"}}},
    "tracking.mlflow.uri": {"tracking": {"mlflow": {"experiment": "digits", "uri": "https://mlflow.example.com/a"}}},
    "tracking.wandb.project": {"tracking": {"wandb": {"project": "digits"}}},
    "tracking.wandb.entity": {"tracking": {"wandb": {"project": "digits", "entity": "vision"}}},
    "remote_debug": {"remote_debug": True},
    "silence": {"silence": ["SMDP423", "SMDP505"]},
    "budget.max_usd": {"budget": {"max_usd": 1000.5, "prices": "prices.yaml"}},
    "budget.max_usd_per_week": {"budget": {"max_usd_per_week": 2000.5, "prices": "prices.yaml"}},
    "notify.on": {"notify": {"on": ["end"], "webhook": "TEAM_WEBHOOK"}},
    "notify.command": {"notify": {"command": "./notify.sh --all"}},
    "notify.webhook": {"notify": {"webhook": "TEAM_WEBHOOK"}},
    "notify.sns": {"notify": {"sns": "arn:aws:sns:us-east-1:123456789012:training"}},
    "notify.local": {"notify": {"webhook": "TEAM_WEBHOOK", "local": True}},
    "budget.prices": {"budget": {"prices": "prices.yaml"}},
    "role": {"role": "arn:aws:iam::123456789012:role/other"},
    "region": {"region": "us-west-2", "image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mine:2.0.1-cu118"},
    "local.channels.NAME": {"local": {"channels": {"train": "data/part-0"}}},
    "serve.kind": {"serve": {"kind": "serverless", "entry": "inference.py"}},
    "serve.entry": {"serve": SERVE | {"entry": "inference.py"}},
    "serve.image": {"serve": SERVE | {"image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/serves:1"}},
    "serve.instance_type": {"serve": SERVE | {"instance_type": "ml.m5.xlarge"}},
    "serve.instance_count": {"serve": SERVE | {"instance_count": 2}},
    "serve.memory_mb": {"serve": {"kind": "serverless", "entry": "inference.py", "memory_mb": 3072}},
    "serve.concurrency": {"serve": {"kind": "serverless", "entry": "inference.py", "concurrency": 7}},
    "serve.environment.NAME": {"serve": SERVE | {"environment": {"THREADS": "2"}}},
    "serve.startup_timeout": {"serve": SERVE | {"startup_timeout": 61}},
    "serve.download_timeout": {"serve": SERVE | {"download_timeout": 62}},
    "serve.lifetime": {"serve": SERVE | {"lifetime": 7201}},
    "serve.expiry_role": {"serve": SERVE | {"lifetime": 7200, "expiry_role": "arn:aws:iam::123456789012:role/expiry"}},
    "serve.max_usd": {"serve": SERVE | {"lifetime": 7200, "max_usd": 5.5}, "budget": {"prices": "prices.yaml"}},
    "serve.input": {"serve": SERVE | {"kind": "batch", "input": "s3://bucket/new"}},
    "serve.split": {"serve": BATCH | {"split": "Line"}},
    "serve.batch_strategy": {"serve": BATCH | {"split": "Line", "batch_strategy": "SingleRecord"}},
    "serve.max_payload_mb": {"serve": BATCH | {"max_payload_mb": 20}},
    "serve.assemble_with": {"serve": BATCH | {"assemble_with": "Line"}},
    "serve.content_type": {"serve": SERVE | {"content_type": "text/csv"}},
    "sweep.objective.metric": swept({"objective": {"metric": "acc"}}) | {"metrics": {"acc": "acc=([0-9.]+)"}},
    "sweep.objective.goal": swept({"objective": {"goal": "maximize"}}),
    "sweep.objective.target": swept({"objective": {"target": 0.25}}),
    "sweep.ranges.integer.NAME": swept({"ranges": {"integer": {"depth": {"min": 1, "max": 8}}}}),
    "sweep.ranges.continuous.NAME": swept({"ranges": {"continuous": {"lr": {"scaling": "logarithmic"}}}}),
    "sweep.ranges.categorical.NAME": swept({"ranges": {"categorical": {"optimizer": ["sgd", 1, True]}}}),
    "sweep.name": swept({"name": "short"}),
    "sweep.strategy": swept({"strategy": "random"}),
    "sweep.trials": swept({"trials": 30}),
    "sweep.parallel": swept({"parallel": 3}),
    "sweep.early_stopping": swept({"early_stopping": "auto"}),
    "sweep.budget.max_run": swept({"budget": {"max_run": 7201}}),
    "sweep.budget.max_usd": swept({"budget": {"max_usd": 5000.5}}) | {"budget": {"prices": "prices.yaml"}},
    "sweep.seed": swept({"seed": 7}),
    "sweep.hyperband.min_resource": swept({"strategy": "hyperband", "hyperband": {"min_resource": 2}}),
    "sweep.hyperband.max_resource": swept({"strategy": "hyperband", "hyperband": {"max_resource": 9}}),
    "sweep.warm_start.parents": swept({"warm_start": {"parents": ["earlier-2611210102-beef"]}}),
    "sweep.warm_start.type": swept({"warm_start": {"parents": ["earlier"], "type": "transfer"}}),
}

#: Fields for the launcher only, and the source, of which the request has only the archive's location.
NOT_IN_THE_REQUEST = {
    "schema",
    "script.source",
    "script.source_limit_mb",
    "batch.reference_size",
    "batch.reference_learning_rate",
    "batch.scaling",
    "batch.warmup_steps",
    "model.parameters",
    "model.trainable",
    "model.dtype",
    "model.optimizer",
    "model.sharding",
    "silence",
    "budget.max_usd",
    "budget.max_usd_per_week",
    "budget.prices",
    *(f"notify.{key}" for key in ("on", "command", "webhook", "sns", "local")),
    "local.channels.NAME",
    "sweep.budget.max_usd",
}


def names(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every field of the job file's form, as docs/reference/job-file.md writes it."""
    for name, info in fields(model).items():
        if info.deprecated:
            continue
        key = f"{above}{name}"
        if model is JobSpec and name == "channels":
            for kind in (S3Channel, FsxChannel, EfsChannel):
                yield from names(kind, "channels.NAME.")
            continue
        inner = model_of(info.annotation, None)
        if inner is not None:
            yield from names(inner, f"{key}.")
        else:
            is_mapping = element(info.annotation) is not None and str(info.annotation).startswith("dict")
            yield f"{key}.NAME" if is_mapping else key


def settings_of(said: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """``KEY=VALUE`` for each value; a dot within a name is escaped."""
    for key, value in said.items():
        at = above + key.replace(".", "\\.")
        if isinstance(value, dict):
            yield from settings_of(value, f"{at}.")
        else:
            yield f"{at}={json.dumps(value)}"


def same_name(request: Any) -> Any:
    """The request with the same job name for every job, and without the plan's tag, which depends on the name."""
    text = re.sub(r'\b([a-z0-9-]+)-(\d{14}|\d{10})-[0-9a-f]{4}(?=["/\\])', r"\1-NAME", json.dumps(request))
    made = json.loads(text)
    made["Tags"] = [one for one in made["Tags"] if one["Key"] != PLAN_TAG]
    return made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_job(tmp_path)
    for script in (tmp_path / "src" / "lib" / "run.py", tmp_path / "more" / "train.py"):
        script.parent.mkdir()
        script.write_text("print('trained')\n")
    (tmp_path / "src" / "inference.py").write_text("def model_fn(model_dir):\n    return model_dir\n")
    prices = (
        "date: 2026-11-01\nsource: ours\nprices: {us-east-1: {ml.p4d.24xlarge: 12.5}}\n"
        "hosting: {us-east-1: {ml.m5.large: 0.5}}\n"
    )
    (tmp_path / "prices.yaml").write_text(prices)
    for name in [one for one in os.environ if one.startswith(("AWS_", "SMDP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def on_the_command_line(*arguments: str) -> Any:
    ran = CliRunner().invoke(command_line, ["plan", "--request", *arguments], standalone_mode=False)
    assert ran.exception is None, ran.output
    return same_name(json.loads(ran.stdout))


def _without(field: str, said: Job) -> Job:
    """The sweep of a case as it is without the field."""
    strategy = {"strategy": "hyperband"} if field.startswith("sweep.hyperband.") else {}
    parents = {"warm_start": {"parents": ["earlier"]}} if field == "sweep.warm_start.type" else {}
    return said | swept(strategy | parents)


def test_every_field_has_a_case() -> None:
    assert set(CASES) == set(names(JobSpec)), "add a case for each new field"


@pytest.mark.parametrize("field", CASES)
def test_field_gives_the_same_request_from_every_source(field: str, folder: Path) -> None:
    said = CASES[field]
    job = merged(BASE, said)
    with (folder / "whole.yaml").open("w") as file:
        YAML().dump(job, file)
    with (folder / "part.yaml").open("w") as file:
        YAML().dump({key: value for key, value in BASE.items() if said.get(key, value) is not None}, file)
    given = {key: value for key, value in said.items() if value is not None}

    in_yaml = on_the_command_line("whole.yaml")
    by_flags = on_the_command_line("part.yaml", *(part for one in settings_of(given) for part in ("--set", one)))
    assert by_flags == in_yaml
    assert same_name(smdp_launch.plan("part.yaml", settings=list(settings_of(given))).submitted) == in_yaml
    assert same_name(smdp_launch.plan(job).submitted) == in_yaml
    assert same_name(smdp_launch.plan(JobSpec.model_validate(job)).submitted) == in_yaml
    assert same_name(smdp_launch.plan(smdp_launch.load("whole.yaml")).submitted) == in_yaml
    before = BASE if not field.startswith("sweep.") else merged(BASE, _without(field, said))
    is_seen = in_yaml != same_name(smdp_launch.plan(before).submitted)
    assert is_seen == (field not in NOT_IN_THE_REQUEST and not field.startswith("serve."))


def test_variable_gives_the_same_request_as_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    by_flag = on_the_command_line("--set", "compute.max_run=3601", "--set", "tags.team=vision")
    monkeypatch.setenv("SMDP_JOB__COMPUTE__MAX_RUN", "3601")
    monkeypatch.setenv("SMDP_JOB__TAGS__TEAM", "vision")
    assert on_the_command_line() == by_flag


def test_installed_command_accepts_many_settings(smdp_launch: Command, folder: Path) -> None:
    together = [CASES[one] for one in ("compute.max_run", "tags.NAME", "environment.NAME", "network.subnets", "amp")]
    job = BASE
    for said in together:
        job = merged(job, said)
    flags = [part for said in together for one in settings_of(said) for part in ("--set", one)]
    ran = smdp_launch("plan", "--request", *flags)
    with (folder / "whole.yaml").open("w") as file:
        YAML().dump(job, file)
    assert same_name(json.loads(ran.stdout)) == on_the_command_line("whole.yaml")


def test_wrong_flag_is_reported_with_its_place() -> None:
    (found,) = smdp_launch.validate("job.yaml", settings=["compute.max_run=long"])
    assert (found.code, str(found.span)) == ("SMDP203", "--set:1:17")
