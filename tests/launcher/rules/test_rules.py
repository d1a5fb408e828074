"""The rules about fields that depend on each other, and about the folders that they name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic, Severity
from smdp_launch.request.build import training_request
from smdp_launch.rules.request.limits import LAUNCH_HYPERPARAMETERS, request_within_limits
from tests.conftest import JOB, write_job

IMAGE = next(line for line in JOB.splitlines() if line.startswith("image:")) + "\n"


def found(folder: Path, *changes: tuple[str, str], local: LocalRequest | None = None) -> list[Diagnostic]:
    text = JOB
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return list(check_job(write_job(folder, text), local).diagnostics)


def only(diagnostics: list[Diagnostic]) -> Diagnostic:
    assert len(diagnostics) == 1, diagnostics
    return diagnostics[0]


@pytest.mark.parametrize(
    ("policy", "engine", "instance_type", "help_"),
    [
        ("strict", "native", "ml.p3.24xlarge", "write ml.p3dn.24xlarge"),
        ("strict", "native", "ml.p4d.24xlarg", "did you mean ml.p4d.24xlarge?"),
        ("strict", "native", "ml.p4de.24xlarge", "policy: extended"),
        ("strict", "smdistributed", "ml.m5.large", "one of ml.p4d.24xlarge, ml.p3dn.24xlarge, ml.p3.16xlarge"),
        ("extended", "smdistributed", "ml.p5.48xlarge", "ml.p"),
    ],
)
def test_unsupported_instance_type_gives_closest_type(
    tmp_path: Path, policy: str, engine: str, instance_type: str, help_: str
) -> None:
    one = only(
        found(
            tmp_path,
            ("engine: native", f"engine: {engine}\npolicy: {policy}"),
            ("ml.p4d.24xlarge", instance_type),
        )
    )
    assert one.code == "SMDP301"
    assert one.text == instance_type
    assert help_ in one.help


@pytest.mark.parametrize("instance_type", ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"])
def test_documented_instance_types_are_allowed(tmp_path: Path, instance_type: str) -> None:
    assert found(tmp_path, ("ml.p4d.24xlarge", instance_type)) == []


@pytest.mark.parametrize(
    ("framework", "code", "help_"),
    [
        ('{name: pytorch, version: "1.5.0"}', "SMDP302", '2.0.0 or later, such as "2.7.1"'),
        ('{name: tensorflow, version: "1.15.2"}', "SMDP302", "TensorFlow 2.11.0 or later"),
        ('{name: tensorflow, version: "2.2"}', "SMDP302", "2.11.0 or later"),
        (
            '{name: tensorflow, version: "2.10.1"}',
            "SMDP307",
            'write "2.14.1" and name its image, or choose `engine: smd',
        ),
        ('{name: pytorch, version: "20.1"}', "SMDP302", 'such as "2.7.1"'),
        ('{name: pytorch, version: "1.13.0"}', "SMDP307", 'write "2.7.1"'),
        ('{name: pytorch, version: "2.8.0"}', "SMDP303", 'write "2.7.1", the newest version with CUDA 11'),
        ('{name: pytorch, version: "2.99.0"}', "SMDP303", 'write "2.7.1", the newest version with CUDA 11'),
    ],
)
def test_unsupported_framework_version_is_reported(tmp_path: Path, framework: str, code: str, help_: str) -> None:
    one = only(found(tmp_path, ('{name: pytorch, version: "2.0.1"}', framework)))
    assert one.code == code
    assert help_ in one.help


def test_short_version_means_newest_patch(tmp_path: Path) -> None:
    assert found(tmp_path, ('"2.0.1"', '"2.0"')) == []


@pytest.mark.parametrize("version", ["2.0.0", "2.1.2", "2.4", "2.7.1"])
def test_native_engine_runs_in_an_own_image_with_any_later_version(tmp_path: Path, version: str) -> None:
    """AWS's images of 2.1 and later contain CUDA 12. PyTorch publishes builds with CUDA 11 up to 2.7."""
    changes = ('"2.0.1"', f'"{version}"'), (IMAGE, IMAGE.replace("2.0.1", f"{version}"))
    assert found(tmp_path, *changes) == []


def test_later_version_is_not_a_misspelled_earlier_one(tmp_path: Path) -> None:
    changes = ('"2.0.1"', '"2.10"'), (IMAGE, ""), ("native", "smdistributed\npolicy: extended")
    one = only(found(tmp_path, *changes))
    assert (one.code, one.edits) == ("SMDP302", ())
    assert "did you mean" not in one.help


@pytest.mark.parametrize("version", ["2.11.1", "2.11", "2.12.0", "2.14.1", "2.14"])
def test_native_engine_uses_cuda_of_its_image(tmp_path: Path, version: str) -> None:
    """AWS has no image of TensorFlow 2.11.1."""
    framework = f'{{name: tensorflow, version: "{version}"}}'
    assert found(tmp_path, ('{name: pytorch, version: "2.0.1"}', framework)) == []


def test_policy_extended_allows_cuda_12(tmp_path: Path) -> None:
    changes = ("engine: native", "engine: smdistributed\npolicy: extended"), (IMAGE, "")
    assert [one.code for one in found(tmp_path, ('"2.0.1"', '"2.1.0"'), changes[1], ("native", "smdistributed"))] == [
        "SMDP303"
    ]
    assert found(tmp_path, ('"2.0.1"', '"2.1.0"'), *changes) == []


def test_native_engine_needs_an_image(tmp_path: Path) -> None:
    assert only(found(tmp_path, (IMAGE, ""))).code == "SMDP305"
    assert found(tmp_path, (IMAGE, ""), ("engine: native", "engine: smdistributed")) == []


def test_aws_image_is_checked_for_python_and_library(tmp_path: Path) -> None:
    aws = [(IMAGE, ""), ("engine: native", "engine: smdistributed\npolicy: extended")]
    python = found(tmp_path, *aws, ('version: "2.0.1"', 'version: "2.0.1", python: "3.8"'))
    assert (only(python).code, only(python).text) == ("SMDP304", "3.8")
    library = only(found(tmp_path, *aws, ('"2.0.1"', '"2.7.1"')))
    assert library.code == "SMDP306"
    assert '"2.5.1"' in library.help


@pytest.mark.parametrize(
    ("before", "after", "code", "help_"),
    [
        ("source: src", "source: sr", "SMDP401", "did you mean src?"),
        ("source: src", "source: data/part-0", "SMDP401", "folder"),
        ("entry: train.py", "entry: trian.py", "SMDP402", "did you mean train.py?"),
        ("entry: train.py", "entry: ../train.py", "SMDP403", "within `script.source`"),
        ("entry: train.py", "entry: /train.py", "SMDP403", "within `script.source`"),
        ("channels: {train: data}", "channels: {trian: data}", "SMDP406", 'did you mean "train"?'),
    ],
)
def test_missing_folder_or_entry_point_is_reported(
    tmp_path: Path, before: str, after: str, code: str, help_: str
) -> None:
    (tmp_path / "empty").mkdir()
    one = only(found(tmp_path, (before, after)))
    assert one.code == code
    assert one.span is not None
    assert one.span.line == 1 + JOB[: JOB.index(before)].count("\n")
    assert help_ in one.help


def test_entry_point_may_contain_dot_segments(tmp_path: Path) -> None:
    assert found(tmp_path, ("entry: train.py", "entry: ./train.py")) == []


def test_local_run_needs_data_for_each_channel(tmp_path: Path) -> None:
    change = ("local: {channels: {train: data}}\n", "")
    assert found(tmp_path, change) == []
    assert only(found(tmp_path, change, local=LocalRequest())).code == "SMDP407"
    assert found(tmp_path, change, local=LocalRequest(data={"train": tmp_path / "data"})) == []


def test_data_flags_are_checked_like_the_file(tmp_path: Path) -> None:
    unknown = found(tmp_path, local=LocalRequest(data={"tset": tmp_path / "data"}))
    assert [(one.code, one.span) for one in unknown] == [("SMDP406", None)]
    missing = found(tmp_path, local=LocalRequest(data={"train": tmp_path / "nowhere"}))
    assert [(one.code, one.span) for one in missing] == [("SMDP404", None)]


def test_files_that_cannot_be_packed_are_reported(tmp_path: Path) -> None:
    write_job(tmp_path)
    os.mkfifo(tmp_path / "src" / "pipe")
    (tmp_path / "src" / "dangling").symlink_to("nowhere")
    (tmp_path / "src" / "loop").symlink_to(".")
    diagnostics = found(tmp_path)
    assert {one.code for one in diagnostics} == {"SMDP408"}
    assert [name for name in ("dangling", "loop", "pipe") if any(name in one.message for one in diagnostics)] == [
        "dangling",
        "loop",
        "pipe",
    ]


def test_unreadable_data_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gone").symlink_to("nowhere")
    one = only(found(tmp_path, local=LocalRequest()))
    assert (one.code, one.severity) == ("SMDP405", Severity.ERROR)
    assert "gone" in one.message


@pytest.mark.parametrize(("data", "code"), [("dat", "SMDP404"), ("empty", "SMDP405"), ("dead", "SMDP405")])
def test_unreadable_data_is_error_for_local_run_and_note_for_others(tmp_path: Path, data: str, code: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "gone").symlink_to("nowhere")
    change = ("channels: {train: data}", f"channels: {{train: {data}}}")
    refused, noted = only(found(tmp_path, change, local=LocalRequest())), only(found(tmp_path, change))
    assert (refused.code, refused.severity) == (code, Severity.ERROR)
    assert (noted.code, noted.severity) == (code, Severity.NOTE)
    assert refused.span == noted.span
    assert "readable" in refused.help


def test_note_cannot_be_silenced(tmp_path: Path) -> None:
    silenced = ("channels: {train: data}}", "channels: {train: dat}}\nsilence: [SMDP404]")
    codes = [(one.code, one.severity) for one in found(tmp_path, silenced)]
    assert codes == [("SMDP404", Severity.NOTE), ("SMDP210", Severity.ERROR)]


def test_rule_does_not_run_after_schema_error(tmp_path: Path) -> None:
    diagnostics = found(tmp_path, ("ml.p4d.24xlarge", "p4d"), ('"2.0.1"', "2.0"), ("source: src", "source: 3"))
    assert [one.code for one in diagnostics] == ["SMDP206", "SMDP206", "SMDP204"]


def test_schema_errors_do_not_hide_other_diagnostics(tmp_path: Path) -> None:
    diagnostics = found(
        tmp_path, ("max_run: 600", "max_run: long"), ("ml.p4d.24xlarge", "ml.p9.large"), ("train.py", "no.py")
    )
    assert [one.code for one in diagnostics] == ["SMDP402", "SMDP301", "SMDP203"]


def test_placeholders_are_refused_only_before_launch(tmp_path: Path) -> None:
    text = JOB.replace("123456789012", "000000000000").replace("us-east-1", "xx-placeholder-1")
    job = check_job(write_job(tmp_path, text))
    assert job.diagnostics == ()
    assert [one.text for one in job.launch_problems] == [
        "000000000000.dkr.ecr.xx-placeholder-1.amazonaws.com/smdp-pytorch:2.0.1-cu118",
        "arn:aws:iam::000000000000:role/training",
        "xx-placeholder-1",
    ]
    assert check_job(write_job(tmp_path)).launch_problems == ()


def test_launch_accepts_the_stated_number_of_hyperparameters(tmp_path: Path) -> None:
    job = check_job(write_job(tmp_path))
    spec, source = job.require()
    names = training_request(spec, source, "job")["HyperParameters"]
    assert sum(name.startswith("sagemaker_") for name in names) == LAUNCH_HYPERPARAMETERS


def test_fallback_types_allow_one_more_hyperparameter(tmp_path: Path) -> None:
    given = "{" + ", ".join(f"x{number}: 1" for number in range(93)) + "}"
    many = ("hyperparameters: {epochs: 2}", f"hyperparameters: {given}")
    fallback = ("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge]\n")
    assert only(found(tmp_path, many)).code == "SMDP602"
    assert found(tmp_path, many, fallback) == []


def test_whole_request_is_checked_last(tmp_path: Path) -> None:
    job = check_job(write_job(tmp_path, JOB + "tags: {team: vision}\n"))
    assert job.facts is not None
    spec = job.facts.spec
    broken = {
        "compute.max_run": {"compute": spec.compute.model_copy(update={"max_run": 0})},
        "channels.train": {"channels": {"train": spec.channels["train"].model_copy(update={"mode": "Fast"})}},
        "tags": {"tags": {"team": "v" * 300}},
    }
    for place, update in broken.items():
        facts = replace(job.facts, spec=spec.model_copy(update=update))
        (one,) = request_within_limits.diagnostics(facts)
        entry = facts.document.entry(tuple(place.split(".")))
        assert one.code == "SMDP601"
        assert one.span in (entry.key, entry.value)


def test_silence_hides_warnings_but_not_errors(tmp_path: Path) -> None:
    one_host = ("instance_count: 2", "instance_count: 1")
    silent = ("region: us-east-1\n", "region: us-east-1\nsilence: [SMDP312]\n")
    assert [one.code for one in found(tmp_path, one_host)] == ["SMDP312"]
    assert found(tmp_path, one_host, silent) == []
    typo = ("ml.p4d.24xlarge", "ml.p4d.24xlarg")
    assert [
        one.code for one in found(tmp_path, typo, ("us-east-1\nlocal", "us-east-1\nsilence: [SMDP301]\nlocal"))
    ] == [
        "SMDP301",
        "SMDP210",
    ]


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        # For an unknown type, GPUs, CUDA, regions and batches are not checked.
        ([("ml.p4d.24xlarge", "ml.p4d.24xlarg"), ("region:", "amp: bf16\nbatch: {global: 99}\nregion:")], ["SMDP301"]),
        # For a version that does not exist, CUDA, Python and build are not checked.
        ([('"2.0.1"', '"9.9.9"'), ("framework: {", 'framework: {python: "3.8", ')], ["SMDP302"]),
        # The incomplete VPC is the cause of the unreachable file system.
        (
            [
                ("train: {s3: \"s3://bucket/train\"}", "train: {fsx: fs-0123456789abcdef0, path: /abcdefgh/data}"),
                ("region:", "network: {subnets: [subnet-0123456789abcdef0]}\nregion:"),
            ],
            ["SMDP419"],
        ),
        # A misspelt limit is not also missing.
        ([("region:", 'spot: {maxwait: 700}\ncheckpoint: {s3: "s3://bucket/c"}\nregion:')], ["SMDP201"]),
        # A variable that is not set has no value to check.
        ([("ml.p4d.24xlarge", "${NO_SUCH_VARIABLE_HERE}")], ["SMDP106"]),
    ],
)  # fmt: skip
def test_cause_is_reported_without_its_consequences(
    tmp_path: Path, changes: list[tuple[str, str]], codes: list[str]
) -> None:
    assert [one.code for one in found(tmp_path, *changes)] == codes


PLACEMENT = "overlay: {ResourceConfig: {InstancePlacementConfig: {EnableMultipleJobs: true}}}\n"


def test_fallback_types_exclude_a_placement(tmp_path: Path) -> None:
    fallback = ("instance_count: 2", "instance_count: 2\n  fallback_types: [ml.p3dn.24xlarge]")
    both = (fallback, ("region: us-east-1\n", f"region: us-east-1\n{PLACEMENT}"))
    one = only(found(tmp_path, *both))
    assert (one.code, one.text, one.severity) == ("SMDP512", "InstancePlacementConfig", Severity.ERROR)
    assert found(tmp_path, both[1]) == []


def test_registry_in_a_vpc_needs_a_network(tmp_path: Path) -> None:
    access = "overlay: {AlgorithmSpecification: {TrainingImageConfig: {TrainingRepositoryAccessMode: Vpc}}}\n"
    without = ("region: us-east-1\n", f"region: us-east-1\n{access}")
    one = only(found(tmp_path, without))
    assert (one.code, one.message) == ("SMDP318", "the image is in a registry of a VPC, but the job has no VPC")
    assert one.help == "add `network: {subnets: [SUBNET], security_groups: [GROUP]}`"
    network = "network: {subnets: [subnet-0123456789abcdef0], security_groups: [sg-0123456789abcdef0]}\n"
    assert found(tmp_path, ("region: us-east-1\n", f"region: us-east-1\n{access}{network}")) == []


def test_tags_of_the_launcher_are_reserved(tmp_path: Path) -> None:
    one = only(found(tmp_path, ("region: us-east-1\n", 'region: us-east-1\ntags: {"smdp-launch:plan": x}\n')))
    assert (one.code, one.text) == ("SMDP608", "smdp-launch:plan")
    assert found(tmp_path, ("region: us-east-1\n", "region: us-east-1\ntags: {smdp-launch: x}\n")) == []


@pytest.mark.parametrize(("interval", "is_allowed"), [(7, False), (500, True), (60000, True), (60001, False)])
def test_profiling_interval_is_one_of_the_documented_values(tmp_path: Path, interval: int, is_allowed: bool) -> None:
    overlay = f"overlay: {{ProfilerConfig: {{ProfilingIntervalInMilliseconds: {interval}}}}}\n"
    diagnostics = found(tmp_path, ("region: us-east-1\n", f"region: us-east-1\n{overlay}"))
    assert [one.code for one in diagnostics] == ([] if is_allowed else ["SMDP601"])
    assert all("not one of 100, 200, 500, 1000, 5000, 60000" in one.message for one in diagnostics)
