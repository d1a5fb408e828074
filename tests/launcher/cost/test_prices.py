"""`catalog prices --update` writes AWS's on-demand prices with date and source, and plans use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.catalog.prices import read_prices
from smdp_launch.errors import ExitCode
from tests.conftest import JOB, Command, write_job
from tests.support.json_documents import the_document, validator
from tests.support.services.price_list import PriceList, product

P4D = "ml.p4d.24xlarge"
PAGES = [
    [product("USE1-Train:ml.p4d.24xlarge", "12.5000000000"), product("USE1-Host:ml.m5.large", "0.25")],
    [
        product("USE1-SpotTrain:ml.p4d.24xlarge", "1"),
        product("USE1-Notebk:ml.m5.large", "2"),
        product("USE1-Train:ml.p3.2xlarge", "3"),
        product("USE1-Train:ml.p3.2xlarge", "4"),
        product("USE1-Train:ml.g5.xlarge", "0"),
        product("USE1-Train:ml.unknown.xlarge", "5"),
        product("USE1-Train:ml.g4dn.xlarge", "6", locationType="AWS Outposts"),
        "{}",
    ],
]
UPDATE = ["catalog", "prices", "--region", "us-east-1", "--update"]


def test_update_writes_a_dated_table_of_unambiguous_hourly_prices(smdp_launch: Command, tmp_path: Path) -> None:
    with PriceList(PAGES) as service:
        ran = smdp_launch(*UPDATE, "--json", env=service.environment(tmp_path))
        assert ran.returncode == ExitCode.OK, ran.stderr
        filters = [{"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"}]
        assert [(one["ServiceCode"], one["Filters"]) for one in service.requests] == [("AmazonSageMaker", filters)] * 2
        table = read_prices(tmp_path / "data" / "smdp-launch" / "prices" / "us-east-1.json")
        assert table.prices == {"us-east-1": {P4D: 12.5}}
        assert table.hosting == {"us-east-1": {"ml.m5.large": 0.25}}
        assert "AWS Price List API" in table.source
        assert "two different prices, so none is used: ml.p3.2xlarge\n" in ran.stderr
        document = the_document(ran, "catalog-prices")
        assert document["checked"] == table.date.isoformat()
        assert [(one["name"], one["training_usd"], one["hosting_usd"]) for one in document["prices"]] == [
            ("ml.m5.large", None, 0.25),
            (P4D, 12.5, None),
        ]
        shown = smdp_launch(*UPDATE[:-1], env=service.environment(tmp_path))
        assert shown.stdout.splitlines()[-1].split() == [P4D, "12.5", "-"]
        assert len(service.requests) == 2  # the list alone calls nothing


def test_plan_and_budget_use_fetched_prices_unless_the_job_file_names_a_table(
    smdp_launch: Command, job_folder: Path, tmp_path: Path
) -> None:
    with PriceList(PAGES) as service:
        environment = service.environment(tmp_path)
        before = smdp_launch("validate", "--set", "budget.max_usd=4", env=environment)
        assert "smdp-launch catalog prices --region us-east-1 --update" in before.stderr
        assert "SMDP804" in before.stderr
        smdp_launch(*UPDATE, env=environment)
    billing = json.loads(smdp_launch("plan", "--json", env=environment).stdout)["billing"]
    assert billing["usd"] == pytest.approx(12.5 / 3)
    assert "AWS Price List API" in billing["price_source"]
    assert "SMDP803" in smdp_launch("validate", "--set", "budget.max_usd=4", env=environment).stderr
    (job_folder / "own.yaml").write_text("{date: 2026-11-01, source: ours, prices: {us-east-1: {ml.p4d.24xlarge: 3}}}")
    write_job(job_folder, f"{JOB}budget: {{prices: own.yaml}}\n")
    billing = json.loads(smdp_launch("plan", "--json", env=environment).stdout)["billing"]
    assert (billing["usd"], billing["price_source"]) == (pytest.approx(1), "ours, 2026-11-01")


@pytest.mark.parametrize(
    ("pages", "status", "message", "code"),
    [
        ([[]], 200, "has no prices of training instances in us-east-1", ExitCode.SERVICE),
        ([["["]], 200, "a product of the Price List API is no JSON object", ExitCode.SERVICE),
        ([[]], 400, "not authorized: pricing:GetProducts", ExitCode.SERVICE),
    ],
)
def test_failed_update_changes_nothing(
    smdp_launch: Command, tmp_path: Path, pages: list[list[str]], status: int, message: str, code: ExitCode
) -> None:
    with PriceList(PAGES) as service:
        assert smdp_launch(*UPDATE, env=service.environment(tmp_path)).returncode == ExitCode.OK
    file = tmp_path / "data" / "smdp-launch" / "prices" / "us-east-1.json"
    before = file.read_bytes()
    with PriceList(pages, status) as service:
        ran = smdp_launch(*UPDATE, env=service.environment(tmp_path))
    assert ran.returncode == code
    assert message in ran.stderr
    assert file.read_bytes() == before


def test_missing_prices_and_prices_in_another_currency_are_refused(smdp_launch: Command, tmp_path: Path) -> None:
    with PriceList(PAGES) as service:
        environment = service.environment(tmp_path)
        ran = smdp_launch("catalog", "prices", "--region", "us-east-1", env=environment)
        assert (ran.returncode, service.requests) == (ExitCode.REFUSED, [])
        assert "smdp-launch catalog prices --region us-east-1 --update" in ran.stderr
        ran = smdp_launch("catalog", "prices", "--region", "cn-north-1", "--update", env=environment)
        assert (ran.returncode, service.requests) == (ExitCode.REFUSED, [])
        assert "CNY" in ran.stderr


def test_damaged_fetched_table_is_reported_with_the_command_that_replaces_it(
    smdp_launch: Command, tmp_path: Path
) -> None:
    with PriceList(PAGES) as service:
        environment = service.environment(tmp_path)
        smdp_launch(*UPDATE, env=environment)
    (tmp_path / "data" / "smdp-launch" / "prices" / "us-east-1.json").write_text('{"date": "2026-11-01"}')
    ran = smdp_launch("validate", env=environment)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP802]: the price table that was fetched for us-east-1 cannot be used" in ran.stderr
    assert "fetch it again: smdp-launch catalog prices --region us-east-1 --update" in ran.stderr


def test_schema_of_prices_rejects_a_text_as_price() -> None:
    row = {"name": P4D, "region": "us-east-1", "training_usd": "12", "hosting_usd": None}
    document = {"catalog": 1, "kind": "prices", "source": "s", "checked": "2026-11-01", "prices": [row], "left_out": []}
    assert not validator("catalog-prices").is_valid(document)
