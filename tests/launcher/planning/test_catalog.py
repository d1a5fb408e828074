"""The catalogue: its tables agree with each other and with the service's model, and its command shows them."""

from __future__ import annotations

import datetime
import json
import re
import sys
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
    native_builds,
    native_cuda,
    parts,
)
from smdp_launch.catalog.images import ImageUri, aws_build, parse_image, tag_facts
from smdp_launch.catalog.instances import instance, instances, replacement, supported_instances
from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.catalog.placeholders import REGION
from smdp_launch.catalog.prices import PriceTableProblem, instance_hours, read_prices
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
from smdp_launch.errors import ExitCode, Refused
from smdp_launch.image.recipe import recipe
from tests.conftest import ROOT, Command, clean_environment
from tests.test_docs import blocks, shell

TABLES = sorted((ROOT / "smdp_launch" / "catalog" / "dated").glob("*.json"))
US = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_says_its_source_and_the_day_it_was_checked(path: Path) -> None:
    loaded = table(path.stem)
    assert loaded["source"]
    datetime.date.fromisoformat(loaded["checked"])


def test_every_instance_type_is_one_that_the_service_takes() -> None:
    assert {one.name for one in instances()} <= known_instance_types()
    assert len(known_instance_types()) > 200
    assert replacement("ml.p3.24xlarge") in known_instance_types()
    assert "ml.p3.24xlarge" not in known_instance_types()


def test_the_instances_have_what_documents_say() -> None:
    p4d = instance("ml.p4d.24xlarge")
    assert p4d is not None
    assert (p4d.gpus, p4d.gpu, p4d.gpu_memory_gb, p4d.compute_capability) == (8, "A100", 40, "8.0")
    assert (p4d.network_gbit, p4d.efa_interfaces, p4d.local_nvme_gb, p4d.cuda_min) == (400, 4, 8000, "11.0")
    assert p4d.from_memory == frozenset()
    p3 = instance("ml.p3.16xlarge")
    assert p3 is not None and p3.local_nvme_gb == 0 and p3.from_memory == {"cuda_min"}
    gb200 = instance("ml.p6e-gb200.36xlarge")
    assert gb200 is not None and gb200.architecture == "aarch64"
    assert instance("ml.p3.24xlarge") is None


def test_cells_from_memory_are_named_by_their_fields() -> None:
    for one in instances():
        assert one.from_memory <= set(one._fields) - {"name", "gpus", "from_memory"}
        assert re.fullmatch(r"\d+\.\d", one.compute_capability)
        assert re.fullmatch(r"\d+\.\d", one.cuda_min)


def test_the_strict_policy_has_the_three_documented_types() -> None:
    strict = ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"]
    assert supported_instances("strict", "native") == supported_instances("strict", "smdistributed") == strict
    assert supported_instances("extended", "smdistributed") == [*strict, "ml.p4de.24xlarge"]
    assert supported_instances("extended", "native") == [one.name for one in instances()]


def test_builds_are_in_order_and_begin_at_the_minimum() -> None:
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
def test_the_cuda_of_a_build_has_its_minor(framework: str, version: str, cuda: str) -> None:
    found = build(framework, version)
    assert found is not None and found.cuda == cuda


def test_an_image_with_another_cuda_does_not_hold_the_library() -> None:
    (other,) = alternatives("pytorch", "2.0.1")
    assert (other.cuda, other.smddp) == ("12.1", None)
    assert alternatives("pytorch", "1.13.1") == []


def test_the_native_engine_says_what_it_is_built_for() -> None:
    assert "2.0.1" in native_builds("pytorch")
    assert native_builds("tensorflow") == ["2.11.1", "2.14.1"]


@pytest.mark.parametrize(("framework", "version"), [(one, version) for one in TITLES for version in native_builds(one)])
def test_the_cuda_of_the_native_engine_is_that_of_the_image_that_is_built_for_it(framework: str, version: str) -> None:
    assert recipe(framework, version, cuda=False).version == version
    cuda = native_cuda(framework, version)
    if cuda is not None:
        assert recipe(framework, version, cuda=True).cuda == cuda
    else:
        with pytest.raises(Refused, match="with CUDA is known"):
            recipe(framework, version, cuda=True)


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
def test_regions_know_their_registry_and_partition(region: str, account: str | None, suffix: str, part: str) -> None:
    assert region_known(region)
    assert (registry_account(region), dns_suffix(region), partition(region)) == (account, suffix, part)


def test_a_region_that_is_not_known_is_not_refused_but_said() -> None:
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


def test_no_two_sources_contradict_each_other() -> None:
    told = [(row["instance_type"], region) for row in table("regions")["offerings"] for region in row["regions"]]
    assert len(told) == len(set(told))
    assert {name for name, _ in told} <= known_instance_types()
    assert {region for _, region in told} <= set(regions())


def test_every_image_of_ours_is_read_back_as_the_build_it_holds() -> None:
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
def test_image_uris_are_taken_apart(uri: str, expected: ImageUri | None) -> None:
    assert parse_image(uri) == expected


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_any_text_is_an_image_or_is_none(text: str) -> None:
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
def test_tags_say_what_is_inside(
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
def test_repositories_say_what_an_image_is_for(repository: str, tag: str, purpose: str | None) -> None:
    found = parse_image(f"{US}/{repository}:{tag}")
    assert found is not None and found.purpose == purpose
    assert aws_build(found) is None


PRICES = {"date": "2026-11-01", "source": "our contract", "prices": {"us-east-1": {"ml.p4d.24xlarge": 12.5}}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prices.json", json.dumps(PRICES)),
        (
            "prices.yaml",
            "date: 2026-11-01\nsource: our contract\ncurrency: USD\nprices: {us-east-1: {ml.p4d.24xlarge: 12.5}}\n",
        ),
    ],
)
def test_a_price_table_is_looked_up(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = read_prices(tmp_path / name)
    assert (found.date, found.source) == (datetime.date(2026, 11, 1), "our contract")
    assert found.hourly("us-east-1", "ml.p4d.24xlarge") == 12.5
    assert found.hourly("us-east-1", "ml.p3.16xlarge") is None
    assert found.hourly("eu-west-1", "ml.p4d.24xlarge") is None
    assert found.age_days(datetime.date(2026, 11, 21)) == 20


def test_instance_hours_need_no_price() -> None:
    assert instance_hours(2, 5400) == 3.0


def test_every_mistake_in_a_price_table_is_told(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "dat: 2026-11-01\nsource: ' '\ncurrency: EUR\nprices:\n  us-esat-1: {}\n  us-east-1:\n"
        "    ml.p4d.24xlarg: 1\n    ml.p3.16xlarge: free\n    ml.p3dn.24xlarge: -1\n    ml.g5.48xlarge: .nan\n"
        "    ml.p5.48xlarge: yes\n  eu-west-1: 5\n  7: {}\n"
    )
    with pytest.raises(PriceTableProblem) as refused:
        read_prices(path)
    assert refused.value.problems == [
        "'dat' is no key of it, did you mean 'date'?",
        "`date` has to be the day of the prices, such as 2026-11-01",
        "`source` has to say where the prices are from",
        "`currency` has to be USD: AWS states its prices in it",
        "'us-esat-1' is no region, did you mean us-east-1?",
        "us-east-1: 'ml.p4d.24xlarg' is no instance type for training, did you mean ml.p4d.24xlarge?",
        "us-east-1: ml.p3.16xlarge needs the USD of one instance an hour, a number above 0",
        "us-east-1: ml.p3dn.24xlarge needs the USD of one instance an hour, a number above 0",
        "us-east-1: ml.g5.48xlarge needs the USD of one instance an hour, a number above 0",
        "us-east-1: ml.p5.48xlarge needs the USD of one instance an hour, a number above 0",
        "eu-west-1: a mapping of instance type to USD an hour is needed",
        "7 is no region",
    ]
    assert refused.value.exit_code == ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("prices.json", '{"date": 1, "date": 2}', "the key 'date' stands twice"),
        ("prices.yaml", "date: 1\ndate: 2\n", "date"),
        ("prices.yaml", "a: [", "it cannot be parsed"),
        ("prices.json", "[" * 100_000, "it cannot be parsed"),
        ("prices.yaml", "[" * 100_000, "it cannot be parsed"),
        ("prices.json", "[]", "one mapping"),
        ("prices.yaml", "", "one mapping"),
        ("prices.yaml", "x" * (1 << 20) + "y", "larger than"),
        ("prices.yaml", "prices: &a {us-east-1: *a}\n", "prices"),
        ("prices.json", json.dumps(PRICES).replace("12.5", "1" * 400), "a number above 0"),
        ("prices.json", json.dumps(PRICES).replace("12.5", "1" * 5000), "it cannot be parsed"),
    ],
)
def test_what_is_no_price_table_is_said_to_be_none(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PriceTableProblem, match=reason):
        read_prices(tmp_path / name)


def test_a_price_table_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(PriceTableProblem, match="No such file"):
        read_prices(tmp_path / "prices.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ["instances"],
        ["instances", "--region", "ca-central-1"],
        ["frameworks"],
        ["images", "--region", "us-east-1"],
    ],
)
def test_lists_for_people_are_plain_in_a_pipe_and_name_what_comes_next(
    smdp_launch: Command, arguments: list[str]
) -> None:
    ran = smdp_launch("catalog", *arguments)
    assert ran.returncode == 0
    assert "\x1b" not in ran.stdout
    assert ran.stderr.splitlines()[-1].startswith("next: ")
    if arguments[0] != "images":
        assert max(map(len, ran.stdout.splitlines())) <= 80


def test_uris_are_whole_in_a_narrow_terminal(smdp_launch: Command) -> None:
    environment = clean_environment(FORCE_COLOR="1", COLUMNS="80")
    ran = smdp_launch("catalog", "images", "--region", "us-east-1", "--version", "2.0.0", env=environment)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout).splitlines()
    assert plain == [
        f"{US}/pytorch-training:2.0.0-gpu-py310",
        "  PyTorch 2.0.0, Python 3.10, CUDA 11.8, SMDDP 1.8.0",
        f"{US}/huggingface-pytorch-training:2.0.0-transformers4.28.1-gpu-py310-cu118-ubuntu20.04",
        "  transformers 4.28.1 on PyTorch 2.0.0, Python 3.10, CUDA 11.8, SMDDP yes",
    ]


@pytest.mark.parametrize("kind", ["instances", "frameworks", "images"])
def test_json_is_one_document(smdp_launch: Command, kind: str) -> None:
    ran = smdp_launch("catalog", kind, "--json", *(["--region", "us-east-1"] if kind == "images" else []))
    assert (ran.returncode, ran.stderr) == (0, "")
    document = json.loads(ran.stdout)
    assert (document["catalog"], document["kind"]) == (1, kind)
    assert len(document[kind]) > 10


def rows(smdp_launch: Command, kind: str, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(smdp_launch("catalog", kind, "--json", *arguments).stdout)[kind]
    return found


def test_lists_are_narrowed_to_what_is_asked_for(smdp_launch: Command) -> None:
    strict = ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"]
    assert [one["name"] for one in rows(smdp_launch, "instances", "--policy", "strict")] == strict
    frankfurt = rows(smdp_launch, "instances", "--policy", "strict", "--region", "eu-central-1")
    assert [one["name"] for one in frankfurt] == ["ml.p3.16xlarge", "ml.p4d.24xlarge"]
    native = rows(smdp_launch, "frameworks", "--engine", "native")
    ours = {(name, version) for name in ("pytorch", "tensorflow") for version in native_builds(name)}
    assert {(one["framework"], one["version"]) for one in native} == ours
    held = rows(smdp_launch, "frameworks", "--engine", "smdistributed", "--policy", "strict")
    assert all(one["smddp"] and str(one["cuda"]).startswith("11.") for one in held)
    assert all(one["transformers"] for one in rows(smdp_launch, "frameworks", "--framework", "huggingface"))
    everywhere = rows(smdp_launch, "images", "--version", "2.0.1", "--policy", "strict")
    assert {one["region"] for one in everywhere} == {one for one in regions() if registry_account(one)}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["instances", "--region", "us-esat-1"], "did you mean us-east-1?"),
        (["instances", "--policy", "strct"], "did you mean strict?"),
        (["instances", "--policy", "none"], "one of strict, extended"),
        (["frameworks", "--engine", "nativ"], "did you mean native?"),
        (["frameworks", "--framework", "torch"], "did you mean pytorch?"),
        (["images"], "give --region"),
        (["images", "--version", "2.0.9"], "did you mean 2.0."),
        (["images", "--region", "eusc-de-east-1"], "no registry"),
        (["images", "--version", "2.8.0", "--policy", "strict", "--framework", "pytorch"], "leave an option out"),
    ],
)
def test_a_slip_in_an_option_is_told_with_what_was_meant(smdp_launch: Command, arguments: list[str], hint: str) -> None:
    ran = smdp_launch("catalog", *arguments)
    assert (ran.returncode, ran.stdout) == (ExitCode.USAGE, "")
    assert hint in ran.stderr


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    script, in_checkout = blocks("docs/catalog.md", "sh")
    ran = shell(script, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "images.json").read_text())["kind"] == "images"
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    for line in in_checkout.splitlines():
        command = line.partition("#")[0].replace("python", sys.executable) + f" --file {tmp_path}/limits.json"
        (tmp_path / "limits.json").write_text((ROOT / "smdp_launch" / "catalog" / "dated" / "limits.json").read_text())
        assert shell(command, tmp_path).returncode == 0
    assert json.loads((tmp_path / "limits.json").read_text())["shapes"] == table("limits")["shapes"]


def test_the_price_table_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = blocks("docs/catalog.md", "yaml")
    (tmp_path / "prices.yaml").write_text(text)
    assert read_prices(tmp_path / "prices.yaml").hourly("us-east-1", "ml.p4d.24xlarge") == 12.5
