"""`list --team` lists the jobs of an account with a tag, from any machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import Command
from tests.support.json_documents import the_document
from tests.support.services.cloud import Cloud, as_the_service
from tests.support.services.faulty_service import cloud_with_data
from tests.support.services.price_list import PriceList, product

VISION, SPEECH = [{"Key": "team", "Value": "vision"}], [{"Key": "team", "Value": "speech"}]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """An account with the jobs of two teams, none of them launched from the folder of a test."""
    with cloud_with_data(tmp_path_factory.mktemp("team") / "state") as made:
        for name, tags, script in (
            ("one", VISION, "print(1)\n"),
            ("broken", VISION, "raise SystemExit(1)\n"),
            ("other", SPEECH, "print(1)\n"),
            ("untagged", [], "print(1)\n"),
        ):
            made.start(name, script, Tags=tags)
            made.wait(name)
        yield made


def test_jobs_of_a_team_are_listed_from_any_machine(smdp_launch: Command, tmp_path: Path, cloud: Cloud) -> None:
    with PriceList([[product("USE1-Train:ml.p4d.24xlarge", "3600")]]) as service:
        environment = as_the_service(cloud.endpoint, tmp_path) | {"XDG_DATA_HOME": str(tmp_path / "data")}
        prices = service.environment(tmp_path)
        update = ["catalog", "prices", "--region", cloud.endpoint.region, "--update"]
        assert smdp_launch(*update, env=prices).returncode == ExitCode.OK
    team = ["list", "--team", "team=vision", "--region", cloud.endpoint.region]
    document = the_document(smdp_launch(*team, "--json", env=environment), "list")
    assert [(one["job"], one["training_job_status"]) for one in document["jobs"]] == [
        ("broken", "Failed"),
        ("one", "Completed"),
    ]
    done = document["jobs"][1]
    billed = cloud.describe("one")["BillableTimeInSeconds"]
    assert (done["billable_seconds"], done["usd"], done["hosts"]) == (billed, float(billed), 1)
    shown = smdp_launch(*team, "--status", "failed", "--since", "1d", env=environment)
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["NAME", "broken"]
    limited = smdp_launch(*team, "--limit", "1", "--json", env=environment)
    assert len(json.loads(limited.stdout)["jobs"]) == 1
    assert smdp_launch("list", "--team", "team=audio", "--region", "us-east-1", env=environment).stdout == (
        "no job in us-east-1 matches the filters\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--team", "vision"], "is no tag with a value: write one such as team=vision"),
        (["--team", "=vision"], "is no tag with a value"),
        (["--team", "team=vision", "--local"], "--team lists jobs on AWS: remove --local"),
    ],
)
def test_wrong_tags_are_usage_errors(smdp_launch: Command, arguments: list[str], message: str) -> None:
    ran = smdp_launch("list", *arguments)
    assert (ran.returncode, ran.stdout) == (ExitCode.USAGE, "")
    assert message in ran.stderr
