"""The command `catalog` lists and filters the tables."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from smdp_launch.catalog.frameworks import (
    builds,
    native_images,
    native_supports,
)
from smdp_launch.catalog.regions import (
    regions,
    registry_account,
)
from smdp_launch.catalog.tables import table
from smdp_launch.errors import ExitCode
from tests.conftest import ROOT, Command, clean_environment
from tests.support.catalog import US
from tests.support.doc_examples import blocks, shell


@pytest.mark.parametrize(
    "arguments",
    [
        ["instances"],
        ["instances", "--region", "ca-central-1"],
        ["frameworks"],
        ["images", "--region", "us-east-1"],
    ],
)
def test_lists_are_plain_in_a_pipe_and_name_the_next_command(smdp_launch: Command, arguments: list[str]) -> None:
    ran = smdp_launch("catalog", *arguments)
    assert ran.returncode == 0
    assert "\x1b" not in ran.stdout
    assert ran.stderr.splitlines()[-1].startswith("next: ")
    if arguments[0] != "images":
        assert max(map(len, ran.stdout.splitlines())) <= 80


def test_uris_are_not_cut_in_a_narrow_terminal(smdp_launch: Command) -> None:
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


def test_list_for_the_native_engine_has_the_source_and_day_of_its_own_table(smdp_launch: Command) -> None:
    of_aws, native = (
        json.loads(smdp_launch("catalog", "frameworks", "--json", *more).stdout)
        for more in ([], ["--engine", "native"])
    )
    loaded = table("frameworks")
    assert (of_aws["source"], of_aws["checked"]) == (loaded["source"], loaded["checked"])
    assert (native["source"], native["checked"]) == (loaded["native"]["source"], loaded["native"]["checked"])
    assert native["checked"] != of_aws["checked"]


def test_lists_are_filtered_by_options(smdp_launch: Command) -> None:
    strict = ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"]
    assert [one["name"] for one in rows(smdp_launch, "instances", "--policy", "strict")] == strict
    frankfurt = rows(smdp_launch, "instances", "--policy", "strict", "--region", "eu-central-1")
    assert [one["name"] for one in frankfurt] == ["ml.p3.16xlarge", "ml.p4d.24xlarge"]
    native = rows(smdp_launch, "frameworks", "--engine", "native")
    names = ("pytorch", "tensorflow")
    ours = {(name, version) for name in names for version in native_images(name)}
    theirs = {(name, one.version) for name in names for one in builds(name) if native_supports(name, one.version)}
    assert {(one["framework"], one["version"]) for one in native} == ours | theirs
    strict_too = rows(smdp_launch, "frameworks", "--engine", "native", "--policy", "strict", "--framework", "pytorch")
    assert {"2.0.1": "11.8", "2.4.0": "11.8", "2.7.1": "11.8"}.items() <= {
        str(one["version"]): one["cuda"] for one in strict_too
    }.items()
    assert "2.8.0" not in [one["version"] for one in strict_too]
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
        (["images"], "add --region"),
        (["images", "--version", "2.0.9"], "did you mean 2.0."),
        (["images", "--region", "eusc-de-east-1"], "no registry"),
        (
            ["images", "--version", "2.8.0", "--policy", "strict", "--framework", "pytorch"],
            "no image matches all options: remove one",
        ),
    ],
)
def test_misspelt_option_value_gives_a_suggestion(smdp_launch: Command, arguments: list[str], hint: str) -> None:
    ran = smdp_launch("catalog", *arguments)
    assert (ran.returncode, ran.stdout) == (ExitCode.USAGE, "")
    assert hint in ran.stderr


def test_commands_of_the_docs_page_run(tmp_path: Path) -> None:
    script, in_checkout = blocks("docs/reference/catalog.md", "sh")
    ran = shell(script, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "images.json").read_text())["kind"] == "images"
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    for line in in_checkout.splitlines():
        command = line.partition("#")[0].replace("python", sys.executable) + f" --file {tmp_path}/limits.json"
        (tmp_path / "limits.json").write_text((ROOT / "smdp_launch" / "catalog" / "dated" / "limits.json").read_text())
        assert shell(command, tmp_path).returncode == 0
    assert json.loads((tmp_path / "limits.json").read_text())["shapes"] == table("limits")["shapes"]
