"""The tables of the catalogue are consistent with each other and with the service's model."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.catalog.frameworks import (
    TITLES,
    alternatives,
    build,
    builds,
    frameworks,
    minimum,
    native_cuda,
    native_image,
    native_images,
    native_supports,
    parts,
)
from smdp_launch.catalog.images import ImageUri, aws_build, parse_image, tag_facts
from smdp_launch.catalog.instances import instance, instances, replacement, supported_instances
from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.catalog.placeholders import REGION
from smdp_launch.catalog.regions import (
    closest_region,
    dns_suffix,
    offering,
    partition,
    region_known,
    regions,
    regions_offering,
    registry_account,
)
from smdp_launch.catalog.registries import training_image
from smdp_launch.catalog.tables import table
from smdp_launch.catalog.transformers import pair, pairs, pairs_of, transformers_versions
from smdp_launch.image.recipe import recipe
from tests.conftest import ROOT
from tests.support.catalog import US

TABLES = sorted((ROOT / "smdp_launch" / "catalog" / "dated").glob("*.json"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_has_its_source_and_check_date(path: Path) -> None:
    loaded = table(path.stem)
    assert loaded["source"]
    datetime.date.fromisoformat(loaded["checked"])


def test_every_instance_type_is_known_to_the_service() -> None:
    assert {one.name for one in instances()} <= known_instance_types()
    assert len(known_instance_types()) > 200
    assert replacement("ml.p3.24xlarge") in known_instance_types()
    assert "ml.p3.24xlarge" not in known_instance_types()


def test_instances_match_their_documents() -> None:
    p4d = instance("ml.p4d.24xlarge")
    assert p4d is not None
    assert (p4d.gpus, p4d.gpu, p4d.gpu_memory_gb, p4d.compute_capability) == (8, "A100", 40, "8.0")
    assert (p4d.network_gbit, p4d.efa_interfaces, p4d.local_nvme_gb, p4d.cuda_min) == (400, 4, 8000, "11.0")
    assert p4d.from_memory == frozenset()
    p3 = instance("ml.p3.16xlarge")
    assert p3 is not None and p3.local_nvme_gb == 0 and (p3.cuda_min, p3.from_memory) == ("9.0", frozenset())
    gb200 = instance("ml.p6e-gb200.36xlarge")
    assert gb200 is not None and gb200.architecture == "aarch64"
    assert instance("ml.p3.24xlarge") is None


def test_values_from_memory_are_listed_by_field() -> None:
    for one in instances():
        assert one.from_memory <= set(one._fields) - {"name", "gpus", "from_memory", "sources"}
        assert re.fullmatch(r"\d+\.\d", one.compute_capability)
        assert one.cuda_min is None or re.fullmatch(r"\d+\.\d", one.cuda_min)


def test_the_strict_policy_has_the_three_documented_types() -> None:
    strict = ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"]
    assert supported_instances("strict", "native") == supported_instances("strict", "smdistributed") == strict
    assert supported_instances("extended", "smdistributed") == [*strict, "ml.p4de.24xlarge"]
    assert supported_instances("extended", "native") == [one.name for one in instances()]


def test_torch_distributed_runs_on_every_gpu_under_every_policy() -> None:
    every = [one.name for one in instances()]
    assert supported_instances("strict", "nccl") == supported_instances("extended", "nccl") == every
    with_cpus = set(supported_instances("strict", "gloo"))
    assert set(every) < with_cpus
    assert "ml.c5.4xlarge" in with_cpus
    assert not any(one.startswith(("ml.trn", "ml.p2")) for one in with_cpus)


def test_builds_are_sorted_and_start_at_the_minimum() -> None:
    for name in frameworks():
        found = [parts(one.version) for one in builds(name)]
        assert found == sorted(found)
        assert found[0] >= parts(minimum(name))
        assert parts(minimum(name)) == {"pytorch": (1, 6, 0), "tensorflow": (2, 3, 0)}[name]


@pytest.mark.parametrize(
    ("framework", "version", "cuda"),
    [
        ("pytorch", "1.6.0", "11.0"),
        ("pytorch", "1.8.1", "11.1"),
        ("pytorch", "1.12.1", "11.3"),
        ("pytorch", "1.13.1", "11.7"),
        ("pytorch", "2.0.1", "11.8"),
        ("pytorch", "2.1.0", "12.1"),
        ("tensorflow", "2.4.3", "11.0"),
        ("tensorflow", "2.6.3", "11.2"),
        ("tensorflow", "2.16.2", "12.3"),
    ],
)
def test_cuda_version_of_a_build_has_a_minor(framework: str, version: str, cuda: str) -> None:
    found = build(framework, version)
    assert found is not None and found.cuda == cuda


def test_image_with_another_cuda_does_not_contain_the_library() -> None:
    (other,) = alternatives("pytorch", "2.0.1")
    assert (other.cuda, other.smddp) == ("12.1", None)
    assert alternatives("pytorch", "1.13.1") == []


def test_native_engine_has_an_image_for_each_minor_version() -> None:
    images = native_images("pytorch")
    assert [".".join(one.split(".")[:2]) for one in images] == [f"2.{minor}" for minor in range(15)]
    assert native_images("tensorflow") == ["2.11.1", "2.14.1"]
    assert (native_image("pytorch", "2.4.0"), native_image("pytorch", "2.4"), native_image("pytorch", "2")) == (
        "2.4.1",
        "2.4.1",
        images[-1],
    )
    assert native_image("pytorch", "1.13.1") is None


@pytest.mark.parametrize(
    ("framework", "version", "is_supported"),
    [
        ("pytorch", "1.13.1", False),
        ("pytorch", "2.0.0", True),
        ("pytorch", "2", True),
        ("pytorch", "2.99.0", True),
        ("pytorch", "20.1", False),
        ("tensorflow", "2.10.1", False),
        ("tensorflow", "2.11.0", True),
        ("tensorflow", "2.12.0", True),
    ],
)
def test_native_engine_supports_every_later_version(framework: str, version: str, is_supported: bool) -> None:
    assert native_supports(framework, version) == is_supported


@pytest.mark.parametrize(("framework", "version"), [(one, version) for one in TITLES for version in native_images(one)])
def test_native_cuda_version_matches_the_dockerfile(framework: str, version: str) -> None:
    assert recipe(framework, version, cuda=False).version == version
    assert recipe(framework, version, cuda=True).cuda == native_cuda(framework, version)


def test_transformers_pairs_name_their_frameworks_build() -> None:
    for one in pairs():
        assert one.framework in frameworks()
        if parts(one.version) < (2, 9):
            known = build(one.framework, one.version)
            assert known is not None and known.python == one.python, one
        assert one.smddp == (one.framework == "tensorflow" or parts(one.version) < (2, 1))
    assert [(one.framework, one.version) for one in pairs_of("4.26")] == [("pytorch", "1.13.1")]
    assert pair("4.26.0", "pytorch", "2.0.1") is None
    found = pair("4.6", "pytorch", "1.7")
    assert found is not None and found.image_tag == "1.7.1-transformers4.6.1-gpu-py36-cu110-ubuntu18.04"
    assert transformers_versions("tensorflow")[-1] == "4.17.0"


@pytest.mark.parametrize(
    ("region", "account", "suffix", "part"),
    [
        ("us-east-1", "763104351884", "amazonaws.com", "aws"),
        ("eu-south-1", "692866216735", "amazonaws.com", "aws"),
        ("cn-north-1", "727897471807", "amazonaws.com.cn", "aws-cn"),
        ("us-gov-west-1", "442386744353", "amazonaws.com", "aws-us-gov"),
        ("eusc-de-east-1", None, "amazonaws.eu", "aws-eusc"),
        ("us-iso-east-1", "886529160074", "c2s.ic.gov", "aws-iso"),
    ],
)
def test_region_has_registry_and_partition(region: str, account: str | None, suffix: str, part: str) -> None:
    assert region_known(region)
    assert (registry_account(region), dns_suffix(region), partition(region)) == (account, suffix, part)


def test_unknown_region_has_no_registry_and_a_default_partition() -> None:
    assert not region_known("xx-nowhere-1")
    assert registry_account("xx-nowhere-1") is None
    assert dns_suffix(REGION) == "amazonaws.com"
    assert closest_region("us-esat-1") == "us-east-1"
    assert closest_region("eu-west-11") == "eu-west-1"
    assert closest_region("moon") is None


def test_offerings_are_yes_no_or_unknown() -> None:
    canada = offering("ml.p4d.24xlarge", "ca-central-1")
    assert canada is not None and not canada.offered and not canada.certain
    frankfurt = offering("ml.p3dn.24xlarge", "eu-central-1")
    assert frankfurt is not None and not frankfurt.offered and frankfurt.certain
    assert offering("ml.p5.48xlarge", "ca-central-1") is None
    assert regions_offering("ml.p4d.24xlarge") == {"us-west-2"}
    assert regions_offering("ml.p5.48xlarge") is None


def test_offerings_have_no_contradictions() -> None:
    offerings = [(row["instance_type"], region) for row in table("regions")["offerings"] for region in row["regions"]]
    assert len(offerings) == len(set(offerings))
    assert {name for name, _ in offerings} <= known_instance_types()
    assert {region for _, region in offerings} <= set(regions())


def test_every_image_uri_parses_to_its_build() -> None:
    for region in ("us-east-1", "cn-north-1", "us-gov-west-1"):
        for name in frameworks():
            for one in builds(name):
                for image in [one, *alternatives(name, one.version)]:
                    read = parse_image(training_image(image, region))
                    assert read is not None and read.is_aws
                    assert (read.region, read.dns_suffix, read.purpose) == (region, dns_suffix(region), "training")
                    assert aws_build(read) == image


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (
            f"{US}/pytorch-training:2.0.1-gpu-py310",
            ImageUri(US, US[:12], "us-east-1", "amazonaws.com", "pytorch-training", "2.0.1-gpu-py310", None),
        ),
        (
            f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train@sha256:{'0' * 64}",
            ImageUri(
                "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
                "123456789012",
                "eu-west-1",
                "amazonaws.com",
                "team/train",
                None,
                f"sha256:{'0' * 64}",
            ),
        ),
        ("ubuntu", ImageUri("", None, None, None, "ubuntu", None, None)),
        ("team/image:1", ImageUri("", None, None, None, "team/image", "1", None)),
        ("localhost:5000/a/b:c", ImageUri("localhost:5000", None, None, None, "a/b", "c", None)),
        ("my image", None),
        ("", None),
        ("UPPER/case", None),
        (f"{US}/:tag", None),
        (f"{US}/x:", None),
        ("s3://bucket/key", None),
        ("x" * 2000, None),
    ],
)
def test_image_uri_is_split_into_parts(uri: str, expected: ImageUri | None) -> None:
    assert parse_image(uri) == expected


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_any_text_parses_to_an_image_or_none(text: str) -> None:
    found = parse_image(text)
    if found is not None:
        tag = f":{found.tag}" if found.tag else ""
        digest = f"@{found.digest}" if found.digest else ""
        registry = f"{found.registry}/" if found.registry else ""
        assert f"{registry}{found.repository}{tag}{digest}" == text


@pytest.mark.parametrize(
    ("tag", "version", "processor", "python", "cuda", "transformers"),
    [
        ("2.0.1-gpu-py310-cu118-ubuntu20.04-sagemaker", "2.0.1", "gpu", "3.10", "11.8", None),
        ("1.6.0-gpu-py3-cu110-ubuntu18.04", "1.6.0", "gpu", None, "11.0", None),
        ("2.0.1-cpu-py310", "2.0.1", "cpu", "3.10", None, None),
        ("1.7.1-transformers4.6.1-gpu-py36-cu110-ubuntu18.04", "1.7.1", "gpu", "3.6", "11.0", "4.6.1"),
        ("latest", None, None, None, None, None),
        ("cu-py-cute-python", None, None, None, None, None),
    ],
)
def test_tag_gives_versions(
    tag: str, version: str | None, processor: str | None, python: str | None, cuda: str | None, transformers: str | None
) -> None:
    found = tag_facts(tag)
    assert (found.version, found.processor, found.python) == (version, processor, python)
    assert (found.cuda, found.transformers) == (cuda, transformers)


@pytest.mark.parametrize(
    ("repository", "tag", "purpose"),
    [
        ("pytorch-inference", "2.0.1-gpu-py310", "inference"),
        ("huggingface-pytorch-training", "2.0.0-gpu-py310", "training"),
        ("my-trainings", "1", None),
        ("team/training", "1", "training"),
    ],
)
def test_repository_gives_the_purpose_of_an_image(repository: str, tag: str, purpose: str | None) -> None:
    found = parse_image(f"{US}/{repository}:{tag}")
    assert found is not None and found.purpose == purpose
    assert aws_build(found) is None
