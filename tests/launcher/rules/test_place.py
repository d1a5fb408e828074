"""Rules about places and versions: buckets, partitions, registry hosts, disks, tags and library versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.catalog import buckets
from smdp_launch.catalog.frameworks import builds, frameworks, last_library_version, parts
from smdp_launch.catalog.instances import (
    instance,
    instances,
    library_versions,
    suggested_instances,
    supported_instances,
)
from smdp_launch.catalog.regions import partition, regions
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic, Severity
from smdp_launch.planning.fix import fix_job
from tests.conftest import JOB, write_job

KEY = "arn:{}:kms:{}:123456789012:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
IMAGE = next(line for line in JOB.splitlines() if line.startswith("image:"))
SMDDP = (("engine: native", "engine: smdistributed\npolicy: extended"), (f"{IMAGE}\n", ""))

#: The characters of names, and the parts of reserved names.
PIECES = st.sampled_from(
    [*"abz019.-", "..", "xn--", "sthree-", "amzn-s3-demo-", "-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"]
)


def found(folder: Path, *changes: tuple[str, str], local: LocalRequest | None = None) -> list[Diagnostic]:
    text = JOB
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return list(check_job(write_job(folder, text), local, environ={}).diagnostics)


def codes(diagnostics: list[Diagnostic]) -> list[str]:
    return [one.code for one in diagnostics]


def add(text: str) -> tuple[str, str]:
    return "region: us-east-1\n", f"region: us-east-1\n{text}\n"


# -- buckets ----------------------------------------------------------------------------------------------------------


@given(st.lists(PIECES, max_size=70).map("".join))
def test_invalid_bucket_name_is_refused_as_in_s3(name: str) -> None:
    allowed = (
        3 <= len(name) <= 63
        and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
        and name[0] not in ".-"
        and name[-1] not in ".-"
        and ".." not in name
        and not re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name)
        and not name.startswith(("xn--", "sthree-", "amzn-s3-demo-"))
        and not name.endswith(("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"))
    )
    assert (buckets.name_problem(name) is None) == allowed or _made_by_aws(name)


def _made_by_aws(name: str) -> bool:
    return re.search(r"-[a-z0-9]{20,}-(s3alias|-ol-s3)$", name) is not None


@given(st.text(max_size=80))
def test_any_text_is_valid_or_refused_as_bucket_name(name: str) -> None:
    assert buckets.name_problem(name) is not None or re.fullmatch(r"[a-z0-9][a-z0-9.-]+[a-z0-9]", name, re.ASCII)


@given(st.tuples(*[st.integers(0, 255)] * 4))
def test_ip_address_as_bucket_name_is_refused(address: tuple[int, ...]) -> None:
    assert buckets.name_problem(".".join(map(str, address))) == "it has the form of an IP address"


@pytest.mark.parametrize(
    "name",
    [
        "abc",
        "a" * 63,
        "training.data-1",
        "1.2.3",
        "1.2.3.4.5",
        "xn-data",
        "data-demo-amzn-s3-demo-",
        "imagenet--use1-az4--x-s3",
        "imagenet--usw2-lax1-az1--x-s3",
        "my-points-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias",
    ],
)
def test_valid_bucket_names_are_accepted(name: str) -> None:
    name = name.removesuffix("-amzn-s3-demo-")
    assert buckets.name_problem(name) is None


@pytest.mark.parametrize("name", ["ab", "a" * 64, "imagenet--x-s3", "points-s3alias", "two..dots", "-data", "data-"])
def test_refused_bucket_names_have_a_reason(name: str) -> None:
    assert buckets.name_problem(name)


@pytest.mark.parametrize(
    ("name", "region"),
    [
        ("imagenet--use1-az4--x-s3", "us-east-1"),
        ("imagenet--apne1-az1--x-s3", "ap-northeast-1"),
        ("imagenet--usw2-lax1-az1--x-s3", "us-west-2"),
        ("imagenet--zz9-az1--x-s3", None),
        ("imagenet-use1-az4", None),
    ],
)
def test_zone_in_directory_bucket_name_gives_region(name: str, region: str | None) -> None:
    assert buckets.region(name) == region


def test_same_bucket_in_several_fields_gives_one_diagnostic(tmp_path: Path) -> None:
    (one,) = found(tmp_path, ("s3://bucket/", "s3://amzn-s3-demo-bucket/"))
    assert (one.code, len(one.also)) == ("SMDP424", 1)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"s3://bucket/train "', "s3://bucket/train"),
        ('"s3://bucket/ train"', "s3://bucket/train"),
        ('" s3://bucket/train"', "s3://bucket/train"),
        ('"s3://data-of-ours "', "s3://data-of-ours"),
        ("s3://bucket/train/*", "s3://bucket/train/"),
        ("s3://bucket/train/**", "s3://bucket/train/"),
        ("s3://bucket/train/part-*", "s3://bucket/train/part-"),
        ("arn:aws:s3:::bucket/train/*", "s3://bucket/train/"),
        ("arn:aws:s3:::data-of-ours", "s3://data-of-ours"),
        ("https://bucket.s3.us-east-1.amazonaws.com/train", "s3://bucket/train"),
        ("https://s3-us-east-1.amazonaws.com/bucket/train", "s3://bucket/train"),
        ("https://bucket.s3.amazonaws.com/train", "s3://bucket/train"),
        ("S3://bucket/train", "s3://bucket/train"),
        ("s3a://bucket/train", "s3://bucket/train"),
        ("s3:/bucket/train", "s3://bucket/train"),
    ],
)
def test_unambiguous_location_fix_is_an_edit(tmp_path: Path, written: str, meant: str) -> None:
    job = write_job(tmp_path, JOB.replace('"s3://bucket/train"', written))
    (before,) = check_job(job, environ={}).diagnostics
    assert before.edits
    fixed = fix_job(job, environ={})
    assert list(fixed.after.diagnostics) == []
    job.write_text(fixed.files[0].after)
    spec, _ = check_job(job, environ={}).require()
    assert spec.channels["train"].model_dump()["s3"] == meant


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("s3://bucket/part-*.csv", "SMDP426"),
        ("s3://bucket/part-?", "SMDP426"),
        ("https://bucket.s3.amazonaws.com/a%20b", "SMDP204"),
        ("https://example.com/bucket/train", "SMDP204"),
        ("https://bucket.s3.eu-west-1.amazonaws.com/train", "SMDP204"),
        ("arn:aws-cn:s3:::bucket/train", "SMDP204"),
        ("s3:///train", "SMDP204"),
        ("s3://arn:aws:s3:us-west-2:123456789012:accesspoint/points/train", "SMDP204"),
        ("s3://Bucket/train", "SMDP204"),
    ],
)
def test_ambiguous_location_fix_is_not_an_edit(tmp_path: Path, written: str, code: str) -> None:
    (one,) = found(tmp_path, ('"s3://bucket/train"', f'"{written}"'))
    assert (one.code, one.edits) == (code, ())


def test_location_with_variable_has_no_edit(tmp_path: Path) -> None:
    job = write_job(tmp_path, JOB.replace('"s3://bucket/train"', '"s3://bucket/${FOLDER}/*"'))
    (one,) = check_job(job, environ={"FOLDER": "train"}).diagnostics
    assert (one.code, one.edits) == ("SMDP426", ())


# -- partition and region ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("us-east-9", "aws"),
        ("us-gov-north-1", "aws-us-gov"),
        ("cn-south-1", "aws-cn"),
        ("us-isob-south-1", "aws-iso-b"),
        ("xx-nowhere-1", "aws"),
    ],
)
def test_prefix_of_unknown_region_gives_partition(region: str, expected: str) -> None:
    assert region not in regions()
    assert partition(region) == expected


@pytest.mark.parametrize("region", ["us-east-1", "cn-north-1", "us-gov-west-1"])
@pytest.mark.parametrize("other", ["us-east-1", "eu-west-1", "cn-north-1", "us-gov-west-1"])
def test_role_must_match_partition_and_key_must_match_region(tmp_path: Path, region: str, other: str) -> None:
    host = f"123456789012.dkr.ecr.{region}.{'amazonaws.com.cn' if region == 'cn-north-1' else 'amazonaws.com'}"
    changes = [
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com", host),
        ("region: us-east-1\n", f"region: {region}\n"),
        ("arn:aws:iam", f"arn:{partition(region)}:iam"),
    ]
    key = (
        f"region: {region}\n",
        f"region: {region}\nencryption: {{output_key: {KEY.format(partition(other), other)}}}\n",
    )
    role = (f"arn:{partition(region)}:iam", f"arn:{partition(other)}:iam")
    assert codes(found(tmp_path, *changes)) == []
    assert codes(found(tmp_path, *changes, key)) == ([] if region == other else ["SMDP609"])
    assert codes(found(tmp_path, *changes, role)) == ([] if partition(region) == partition(other) else ["SMDP609"])


def test_key_id_or_alias_has_no_region(tmp_path: Path) -> None:
    for key in ("alias/results", "mrk-0123456789abcdef0123456789abcdef", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"):
        assert found(tmp_path, add(f"encryption: {{output_key: {key}}}")) == []


def test_overlay_arn_of_regional_service_is_compared(tmp_path: Path) -> None:
    plan = "overlay: {{MlflowConfig: {{MlflowResourceArn: 'arn:aws:sagemaker:{}:123456789012:mlflow-app/app-x'}}}}"
    assert found(tmp_path, add(plan.format("us-east-1"))) == []
    assert codes(found(tmp_path, add(plan.format("us-west-2")))) == ["SMDP609"]


def test_placeholder_arns_are_not_compared(tmp_path: Path) -> None:
    change = ("123456789012.dkr.ecr.us-east-1", "000000000000.dkr.ecr.xx-placeholder-1")
    assert found(tmp_path, change, ("region: us-east-1", "region: xx-placeholder-1")) == []
    region = ("region: us-east-1", "region: cn-north-1")
    role = ("arn:aws:iam::123456789012:role/training", "arn:aws:iam::000000000000:role/your-execution-role")
    assert codes(found(tmp_path, change, region, role)) == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com", []),
        ("123456789012.dkr.ecr-fips.us-east-1.amazonaws.com", []),
        ("123456789012.dkr-ecr.us-east-1.on.aws", []),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com.cn", ["SMDP321"]),
        ("123456789012.dkr.ecr.us-east-1.amazon.com", ["SMDP321"]),
        ("123456789012.dkr.ecr.us-esat-1.amazonaws.com", ["SMDP309"]),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com", ["SMDP309"]),
        ("public.ecr.aws/team", ["SMDP318"]),
        ("ghcr.io/team", ["SMDP318"]),
        ("localhost:5000", ["SMDP318"]),
    ],
)
def test_registry_host_must_have_suffix_of_region(tmp_path: Path, host: str, expected: list[str]) -> None:
    change = ("123456789012.dkr.ecr.us-east-1.amazonaws.com", host)
    assert codes(found(tmp_path, change)) == expected
    assert "SMDP318" not in codes(found(tmp_path, change, local=LocalRequest()))


def test_overlay_from_help_allows_registry_in_vpc(tmp_path: Path) -> None:
    change = ("123456789012.dkr.ecr.us-east-1.amazonaws.com", "registry.example.com")
    (one,) = found(tmp_path, change)
    network, overlay = re.findall(r"`(network: .*?|overlay: .*?)`", one.help)
    network = network.replace("SUBNET", "subnet-0a1b2c3d4e5f60718").replace("GROUP", "sg-0a1b2c3d4e5f60718")
    assert one.severity is Severity.ERROR
    assert found(tmp_path, change, add(f"{network}\n{overlay}")) == []


# -- disks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", supported_instances("extended", "native"))
def test_volume_key_needs_ebs_volumes(tmp_path: Path, one: str) -> None:
    known = instance(one)
    assert known is not None
    changes = (
        ("ml.p4d.24xlarge", one),
        ("engine: native", "engine: native\npolicy: extended"),
        (":2.0.1-cu118", ":2.0.1"),
    )
    reported = codes(found(tmp_path, *changes, add("encryption: {volume_key: alias/volumes}")))
    assert ("SMDP322" in reported) == bool(known.local_nvme_gb)


def test_smallest_disks_of_all_types_limit_the_volume(tmp_path: Path) -> None:
    volume = ("  max_run: 600\n", "  max_run: 600\n  volume_gb: 4000\n")
    fallback = ("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge, ml.p3.16xlarge]\n")
    assert found(tmp_path, volume) == []
    (one,) = found(tmp_path, volume, fallback)
    assert (one.code, one.severity) == ("SMDP323", Severity.WARNING)
    assert "ml.p3dn.24xlarge has 1800 GB" in one.message


# -- tags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["aws:team", "AWS:team", "Aws:"])
def test_reserved_tag_keys_are_refused(tmp_path: Path, key: str) -> None:
    (one,) = found(tmp_path, add(f"tags: {{'{key}': x}}"))
    assert (one.code, one.text) == ("SMDP608", key)


@pytest.mark.parametrize("key", ["aws", "aws-team", "my:aws:team"])
def test_other_tag_keys_with_aws_are_accepted(tmp_path: Path, key: str) -> None:
    assert found(tmp_path, add(f"tags: {{'{key}': x}}")) == []


# -- versions of the library ------------------------------------------------------------------------------------------


def test_suggestion_order_has_every_type_once() -> None:
    for policy, engine in (("strict", "native"), ("extended", "native"), ("extended", "smdistributed")):
        assert sorted(suggested_instances(policy, engine)) == sorted(supported_instances(policy, engine))
    assert suggested_instances("extended", "smdistributed")[-1] == "ml.p3.16xlarge"
    assert {one.name for one in instances()} == set(suggested_instances("extended", "native"))


def test_last_library_version_is_in_an_image() -> None:
    versions = {one.smddp for name in frameworks() for one in builds(name) if one.smddp}
    assert last_library_version() in versions
    assert all(parts(one) <= parts(last_library_version()) for one in versions)


@pytest.mark.parametrize(
    ("type_", "version", "served"),
    [
        ("ml.p4de.24xlarge", "1.5.1", False),
        ("ml.p4de.24xlarge", "1.6.0", True),
        ("ml.p4de.24xlarge", "2.6.0", True),
        ("ml.p3.16xlarge", "1.0.0", True),
        ("ml.p3.16xlarge", "2.2.0", True),
        ("ml.p3.16xlarge", "2.3.0", False),
        ("ml.p3.16xlarge", "2.10.0", False),
        ("ml.p4d.24xlarge", "1.0.0", True),
    ],
)
def test_library_version_supports_type(type_: str, version: str, served: bool) -> None:
    assert library_versions(type_).include(version) == served


@pytest.mark.parametrize("type_", supported_instances("extended", "smdistributed"))
@pytest.mark.parametrize("version", [one.version for one in builds("pytorch") if one.smddp])
def test_image_determines_supported_types(tmp_path: Path, version: str, type_: str) -> None:
    (of,) = [one for one in builds("pytorch") if one.version == version]
    diagnostics = found(tmp_path, *SMDDP, ('"2.0.1"', f'"{version}"'), ("ml.p4d.24xlarge", type_))
    served = library_versions(type_).include(str(of.smddp))
    assert [one for one in codes(diagnostics) if one == "SMDP324"] == ([] if served else ["SMDP324"])
    for one in diagnostics:
        if one.code == "SMDP324":
            assert str(of.smddp) in one.message
            other = re.findall(r'PyTorch "([\d.]+)"', one.help)[-1]
            assert codes(found(tmp_path, *SMDDP, ('"2.0.1"', f'"{other}"'), ("ml.p4d.24xlarge", type_))) == []


def test_no_tensorflow_library_supports_p4de(tmp_path: Path) -> None:
    framework = ('{name: pytorch, version: "2.0.1"}', '{name: tensorflow, version: "2.11.0"}')
    (one,) = found(tmp_path, *SMDDP, framework, ("ml.p4d.24xlarge", "ml.p4de.24xlarge"))
    assert one.code == "SMDP324"
    assert one.help == "use ml.p4d.24xlarge, ml.p3dn.24xlarge, ml.p3.16xlarge"


def test_own_image_may_contain_any_library_version(tmp_path: Path) -> None:
    own = (f"{IMAGE}\n", "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1\n")
    changes = own, SMDDP[0], ('"2.0.1"', '"1.12.0"'), ("ml.p4d.24xlarge", "ml.p4de.24xlarge")
    assert found(tmp_path, *changes) == []


def test_policy_is_reported_before_library_version(tmp_path: Path) -> None:
    changes = SMDDP[1], ("engine: native", "engine: smdistributed"), ('"2.0.1"', '"2.3.0"')
    assert codes(found(tmp_path, *changes, ("ml.p4d.24xlarge", "ml.p3.16xlarge"))) == ["SMDP303"]


def test_suggested_types_fit_cuda_of_image(tmp_path: Path) -> None:
    (one,) = found(tmp_path, ("engine: native", "engine: native\npolicy: extended"), ("ml.p4d.24xlarge", "ml.m5.large"))
    assert one.help.startswith("write one of ml.p5en.48xlarge, ml.p5e.48xlarge, ml.p5.48xlarge, ml.p4d.24xlarge")
    assert "ml.p6" not in one.help
    assert one.help.endswith("more (smdp-launch catalog instances --engine native)")
