"""The exact request of a job: names, encoding and archive."""

from __future__ import annotations

import ast
import gzip
import io
import json
import re
import shutil
import tarfile
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from smdp_entrypoint.contract.hyperparameters import Hyperparameters, to_arguments
from smdp_launch.catalog.faults import Fault
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.prepare import local_run, make_plan
from smdp_launch.planning.summary import summary
from smdp_launch.request.hyperparameters import encode, script_arguments
from smdp_launch.request.names import S3Location, job_name
from smdp_launch.request.ranks import hosts, rank_map
from smdp_launch.source import scan
from smdp_launch.source.archive import MODIFIED, write_archive
from smdp_launch.source.scan import scan_source
from tests.conftest import JOB, ROOT, write_job
from tests.launcher.planning.scaling import ON_CPUS
from tests.support.jobs.plans import NOW, plan_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=3),
    max_leaves=8,
)


def stable(plan: Plan, folder: Path) -> dict[str, Any]:
    text = json.dumps(plan.to_json()).replace(str(folder), "FOLDER")
    return json.loads(text)  # type: ignore[no-any-return]


def assert_service_accepts(request: dict[str, Any]) -> None:
    shape = Session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    report = ParamValidator().validate(request, shape)
    assert not report.has_errors(), report.generate_report()


def test_request_with_fallback_types_has_no_instance_type_hyperparameter(tmp_path: Path) -> None:
    one_type = plan_of(write_job(tmp_path)).request
    fallback = JOB.replace("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge]\n")
    several = plan_of(write_job(tmp_path, fallback)).request
    assert one_type["HyperParameters"]["sagemaker_instance_type"] == '"ml.p4d.24xlarge"'
    left_out = {"sagemaker_instance_type", "sagemaker_submit_directory", "sagemaker_job_name"}
    assert several["HyperParameters"].keys() == one_type["HyperParameters"].keys() - {"sagemaker_instance_type"}
    common = several["HyperParameters"].keys() - left_out
    assert {name: several["HyperParameters"][name] for name in common} == {
        name: one_type["HyperParameters"][name] for name in common
    }
    assert_service_accepts(several)


def test_plan_of_a_small_job_matches_snapshot(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    plan = plan_of(write_job(tmp_path))
    assert stable(plan, tmp_path) == snapshot(extension_class=JSONSnapshotExtension)
    assert_service_accepts(plan.request)


def test_plan_hash_does_not_depend_on_name_and_time(tmp_path: Path) -> None:
    text = JOB + 'checkpoint: {s3: "s3://bucket/checkpoints"}\n'  # the job's name stands in the location, too
    path = write_job(tmp_path, text)
    first = plan_of(path)
    later = make_plan(check_job(path), NOW + timedelta(days=3), 0xCAFE)
    renamed = plan_of(write_job(tmp_path, text.replace("name: small", "name: other")))
    assert len({one.job for one in (first, later, renamed)}) == 3
    assert first.hash == later.hash == renamed.hash
    for before, after in (
        ("epochs: 2", "epochs: 3"),
        ("bucket/checkpoints", "bucket/kept"),
        ("us-east-1", "us-west-2"),
    ):
        assert plan_of(write_job(tmp_path, text.replace(before, after))).hash != first.hash
    assert plan_of(write_job(tmp_path, text, "print('another script')\n")).hash != first.hash


def test_plan_of_a_local_run_changes_only_hosts_and_environment(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    on_aws = plan_of(path).request
    local = plan_of(path, LocalRun(hosts=3, workers_per_host=2)).request
    changed = {key for key in local if local[key] != on_aws.get(key)}
    assert changed == {"ResourceConfig", "Environment", "Tags"}
    assert local["ResourceConfig"]["InstanceCount"] == 3
    assert local["Environment"] == {"SMDP_ENGINE": "native", "SMDP_WORKERS_PER_HOST": "2"}
    assert_service_accepts(local)


def test_aws_images_and_checkpoints_are_in_the_request(tmp_path: Path) -> None:
    text = re.sub(r"image: .*\n", "", JOB).replace("engine: native", "engine: smdistributed")
    plan = plan_of(write_job(tmp_path, text + "checkpoint: {s3: s3://bucket/ck/}\n"))
    image = plan.request["AlgorithmSpecification"]["TrainingImage"]
    assert image == "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-gpu-py310"
    assert plan.request["CheckpointConfig"] == {
        "S3Uri": f"s3://bucket/ck/{plan.job}",
        "LocalPath": "/opt/ml/checkpoints",
    }
    assert_service_accepts(plan.request)


def test_shared_checkpoints_have_the_location_of_the_job_file_except_in_rehearsals(tmp_path: Path) -> None:
    path = write_job(tmp_path, JOB + "checkpoint: {s3: s3://bucket/ck/, shared: true}\n")
    assert plan_of(path).request["CheckpointConfig"]["S3Uri"] == "s3://bucket/ck/"
    assert plan_of(path, LocalRun(1, 1)).request["CheckpointConfig"]["S3Uri"] == "s3://bucket/ck/"
    rehearsal = plan_of(path, LocalRun(1, 1, fault=Fault("spot", "algo-1", 0)))
    assert rehearsal.request["CheckpointConfig"]["S3Uri"] == f"s3://bucket/ck/{rehearsal.job}"


def test_plan_hash_depends_on_request_and_source(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    first = plan_of(path).hash
    assert plan_of(path).hash == first
    (tmp_path / "src" / "train.py").write_text("print('other')\n")
    second = plan_of(path).hash
    write_job(tmp_path, JOB.replace("max_run: 600", "max_run: 601"), "print('other')\n")
    assert len({first, second, plan_of(path).hash}) == 3


def test_templates_have_no_diagnostics() -> None:
    jobs = sorted((ROOT / "templates" / "jobs").glob("*.yaml"))
    assert jobs
    for path in jobs:
        checked = check_job(path)
        assert [one.code for one in checked.diagnostics if one.code not in {"SMDP404"}] == []


def test_local_run_fits_the_machine_by_default(tmp_path: Path) -> None:
    job = check_job(write_job(tmp_path, JOB.replace("instance_count: 2", "instance_count: 32")))
    small = local_run(job, LocalRequest(), cores=2)
    assert (small.hosts, small.workers_per_host) == (4, 1)
    large = local_run(job, LocalRequest(), cores=128)
    assert (large.hosts, large.workers_per_host) == (4, 8)
    explicit = local_run(job, LocalRequest(hosts=3, workers_per_host=5), cores=2)
    assert (explicit.hosts, explicit.workers_per_host) == (3, 5)
    assert any("ml.p4d.24xlarge" in one for one in explicit.not_simulated)


@given(st.text(alphabet="abcXYZ019", min_size=1, max_size=43), st.integers(0, 0xFFFF))
def test_job_names_fit_the_service(base: str, suffix: int) -> None:
    name = job_name(base, NOW.astimezone(timezone(timedelta(hours=9))), suffix)
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", name)
    assert name == f"{base}-20261121010203-{suffix:04x}"


@pytest.mark.parametrize("suffix", [-1, 1 << 16])
def test_suffix_out_of_range_raises_value_error(suffix: int) -> None:
    with pytest.raises(ValueError, match="65535"):
        job_name("a", NOW, suffix)


def test_ranks_follow_the_platform_order_of_hosts() -> None:
    assert hosts(11) == ["algo-1", "algo-10", "algo-11", *[f"algo-{n}" for n in range(2, 10)]]
    ranks = rank_map(11, 8)
    assert [one.rank for one in ranks] == list(range(88))
    assert [(one.host, one.local_rank, one.gpu) for one in ranks[8:10]] == [("algo-10", 0, 0), ("algo-10", 1, 1)]


@given(st.dictionaries(st.text(min_size=1), json_values))
def test_decoded_hyperparameters_equal_the_job_file(values: dict[str, Any]) -> None:
    sent = encode(values)
    assert {name: json.loads(value) for name, value in sent.items()} == values
    assert not any("\n" in value for value in sent.values())


@given(st.dictionaries(st.text(min_size=1), json_values))
def test_script_gets_one_argument_for_each_value(values: dict[str, Any]) -> None:
    arguments = script_arguments(values)
    assert len(arguments) == 2 * len(values)
    for name, shown in zip(arguments[::2], arguments[1::2], strict=True):
        value = values[name.removeprefix("--") if name.startswith("--") and name[2:] in values else name[1:]]
        if isinstance(value, list):
            assert ast.literal_eval(shown) == value
        elif isinstance(value, str):
            assert shown == value


@given(st.dictionaries(st.text(min_size=1), json_values))
def test_script_arguments_are_those_that_the_containers_pass(values: dict[str, Any]) -> None:
    decoded = Hyperparameters.decode(encode(values))
    assert script_arguments(decoded.script) == to_arguments(decoded.script)


def test_script_arguments_match_the_toolkit() -> None:
    nested = {"model": {"depth": 3}, "seed": None, "a": "x"}
    values = {"lr": 0.1, "n": 3, "flag": True, "none": None, "list": [1, "a"], "map": nested, "s": "a b"}
    assert script_arguments(values) == [
        *("--flag", "True"),
        *("--list", "[1, 'a']"),
        *("--lr", "0.1"),
        *("--map", "a=x,model={'depth': 3},seed=None"),
        *("-n", "3"),
        *("--none", ""),
        *("-s", "a b"),
    ]


@pytest.mark.parametrize(
    ("uri", "parts", "joined"),
    [
        ("s3://b", ("x",), "s3://b/x"),
        ("s3://b/", ("x",), "s3://b/x"),
        ("s3://b/p", ("x", "y"), "s3://b/p/x/y"),
        ("s3://b/p/", ("x",), "s3://b/p/x"),
    ],
)
def test_joined_locations_have_no_double_slashes(uri: str, parts: tuple[str, ...], joined: str) -> None:
    assert str(S3Location.parse(uri).join(*parts)) == joined


def packed(folder: Path) -> bytes:
    file = io.BytesIO()
    write_archive(scan_source(folder), file)
    return file.getvalue()


def test_archive_depends_only_on_names_modes_and_contents(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "pkg").mkdir(parents=True)
        (folder / "pkg" / "ä.py").write_text("x = 1\n")
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o700 if name == "one" else 0o755)
        (folder / "link.py").symlink_to("pkg/ä.py")
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    first = packed(tmp_path / "one")
    assert packed(tmp_path / "two") == first
    assert scan_source(tmp_path / "one").sha256 == scan_source(tmp_path / "two").sha256
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(first))) as tar:
        members = {one.name: (one.mode, one.mtime, one.uid, one.isfile()) for one in tar}
    assert members == {
        "link.py": (0o644, MODIFIED, 0, True),
        "pkg/ä.py": (0o644, MODIFIED, 0, True),
        "run.sh": (0o755, MODIFIED, 0, True),
    }


def test_unpacked_source_can_be_zipped_and_has_its_empty_folders(tmp_path: Path) -> None:
    source, code = tmp_path / "source", tmp_path / "code"
    (source / "logs" / "deep").mkdir(parents=True)
    (source / "ignored").mkdir()
    (source / "only").mkdir()
    (source / "only" / "a.log").write_text("x")
    (source / "train.py").write_text("x = 1\n")
    without = scan_source(source).sha256
    (source / ".smdpignore").write_text("*.log\nignored/\n")
    with tarfile.open(fileobj=io.BytesIO(packed(source))) as tar:
        tar.extractall(code)
    assert sorted(str(one.relative_to(code)) for one in code.rglob("*")) == ["logs", "logs/deep", "train.py"]
    shutil.make_archive(str(tmp_path / "zipped"), "zip", code)  # zip has no dates before 1980
    (source / "logs" / "deep").rmdir()
    assert without != scan_source(source).sha256
    assert scan_source(source).empty_folders == ("logs",)


def test_folder_with_files_of_tools_is_not_empty(tmp_path: Path) -> None:
    """Such a folder is what is left of a package when a version control removes its files."""
    (tmp_path / "train.py").write_text("x = 1\n")
    before = scan_source(tmp_path).sha256
    (tmp_path / "old" / "__pycache__").mkdir(parents=True)
    (tmp_path / "old" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"")
    assert scan_source(tmp_path).sha256 == before


def test_empty_folders_count_towards_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MAX_FILES", 2)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert not scan_source(tmp_path, 100).too_large
    (tmp_path / "train.py").write_text("x = 1\n")
    assert scan_source(tmp_path, 100).too_large


def test_file_that_shrinks_during_packing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("long enough")
    tree = scan_source(tmp_path)
    (tmp_path / "a.py").write_text("")
    with pytest.raises(OSError, match="unexpected end of data"):
        write_archive(tree, io.BytesIO())


def test_plan_of_an_image_for_cpus_names_no_cuda(tmp_path: Path) -> None:
    made = plan_of(write_job(tmp_path, ON_CPUS))
    assert (made.image.cuda, made.image.python, made.image.is_for_cpus) == (None, "3.10", True)
    assert ("", "AWS: no CUDA, an image for CPUs, Python 3.10") in summary(made)
