"""Price tables: valid ones give prices, and every error of an invalid one is reported."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from smdp_launch.catalog.prices import PriceTableProblem, instance_hours, read_prices
from smdp_launch.errors import ExitCode
from tests.support.doc_examples import blocks

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
def test_price_table_is_read(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = read_prices(tmp_path / name)
    assert (found.date, found.source) == (datetime.date(2026, 11, 1), "our contract")
    assert found.hourly("us-east-1", "ml.p4d.24xlarge") == 12.5
    assert found.hourly("us-east-1", "ml.p3.16xlarge") is None
    assert found.hourly("eu-west-1", "ml.p4d.24xlarge") is None


def test_hosting_has_prices_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES | {"hosting": {"us-east-1": {"ml.m5.large": 0.5}}}))
    found = read_prices(path)
    assert found.hosting_hourly("us-east-1", "ml.m5.large") == 0.5
    assert (found.hosting_hourly("us-east-1", "ml.p4d.24xlarge"), found.hourly("us-east-1", "ml.m5.large")) == (
        None,
        None,
    )


@pytest.mark.parametrize(
    ("hosting", "problem"),
    [
        ({"us-east-1": {"ml.p3dn.24xlarge": 1}}, "hosting: us-east-1: 'ml.p3dn.24xlarge' is not an instance type for"),
        ({"us-east-1": {"ml.m5.large": 0}}, "hosting: us-east-1: ml.m5.large must be the USD of one instance an hour"),
        ({"us-esat-1": {"ml.m5.large": 1}}, "hosting: 'us-esat-1' is not a region, did you mean us-east-1?"),
        ([], "`hosting` must be a mapping of region to instance type to USD an hour"),
    ],
)
def test_error_in_the_prices_of_hosting_is_reported(tmp_path: Path, hosting: object, problem: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES | {"hosting": hosting}))
    with pytest.raises(PriceTableProblem) as refused:
        read_prices(path)
    (found,) = refused.value.problems
    assert found.startswith(problem)


def test_instance_hours_need_no_price() -> None:
    assert instance_hours(2, 5400) == 3.0


def test_every_error_in_a_price_table_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "dat: 2026-11-01\nsource: ' '\ncurrency: EUR\nprices:\n  us-esat-1: {}\n  us-east-1:\n"
        "    ml.p4d.24xlarg: 1\n    ml.p3.16xlarge: free\n    ml.p3dn.24xlarge: -1\n    ml.g5.48xlarge: .nan\n"
        "    ml.p5.48xlarge: yes\n  eu-west-1: 5\n  7: {}\n"
    )
    with pytest.raises(PriceTableProblem) as refused:
        read_prices(path)
    assert refused.value.problems == [
        "'dat' is not a known key, did you mean 'date'?",
        "`date` must be the day of the prices, such as 2026-11-01",
        "`source` must name the source of the prices",
        "`currency` must be USD, the currency of AWS's prices",
        "'us-esat-1' is not a region, did you mean us-east-1?",
        "us-east-1: 'ml.p4d.24xlarg' is not an instance type for training, did you mean ml.p4d.24xlarge?",
        "us-east-1: ml.p3.16xlarge must be the USD of one instance an hour, a number above 0",
        "us-east-1: ml.p3dn.24xlarge must be the USD of one instance an hour, a number above 0",
        "us-east-1: ml.g5.48xlarge must be the USD of one instance an hour, a number above 0",
        "us-east-1: ml.p5.48xlarge must be the USD of one instance an hour, a number above 0",
        "eu-west-1 must be a mapping of instance type to USD an hour",
        "7 is not a region",
    ]
    assert refused.value.exit_code == ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("prices.json", '{"date": 1, "date": 2}', "the key 'date' appears twice"),
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
def test_invalid_price_table_is_refused_with_its_reason(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(PriceTableProblem, match=reason):
        read_prices(tmp_path / name)


def test_missing_price_table_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PriceTableProblem, match="No such file"):
        read_prices(tmp_path / "prices.json")


def test_price_table_of_the_docs_page_is_valid(tmp_path: Path) -> None:
    (text,) = blocks("docs/reference/catalog.md", "yaml")
    (tmp_path / "prices.yaml").write_text(text)
    assert read_prices(tmp_path / "prices.yaml").hourly("us-east-1", "ml.p4d.24xlarge") == 12.5
