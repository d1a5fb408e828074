"""The cost of a job is compared with its budget before a launch, independent of where the budget is set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.catalog.placeholders import REGION
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode
from smdp_launch.planning.saved import load, save
from tests.conftest import JOB, Command, write_job
from tests.support.jobs.plans import plan_of

TABLE = """\
date: 2026-11-01
source: our contract, 2026
prices: {us-east-1: {ml.p4d.24xlarge: 12.5, ml.p3dn.24xlarge: 20}}
"""


@pytest.fixture
def priced(job_folder: Path) -> Path:
    """Two hosts for ten minutes: a third of an instance-hour."""
    (job_folder / "prices.yaml").write_text(TABLE)
    return write_job(job_folder, f"{JOB}budget: {{prices: prices.yaml}}\n")


def codes(path: Path, *settings: str, local: LocalRequest | None = None) -> list[str]:
    return [one.code for one in check_job(path, local, settings=settings, environ={}).diagnostics]


def test_plan_shows_cost_price_source_and_budget(priced: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("plan", "--set", "budget.max_usd=5")
    bill = (
        "0.33 instance-hours at most: 4.17 USD at 12.5 an hour (our contract, 2026, 2026-11-01); the budget is 5.00 USD"
    )
    assert f"cost       {bill}\n" in ran.stdout
    billing = json.loads(smdp_launch("plan", "--json").stdout)["billing"]
    assert (billing["usd"], billing["ceiling_usd"]) == (pytest.approx(12.5 / 3), None)


def test_budget_in_defaults_file_stops_plan_and_launch_at_its_line(priced: Path, smdp_launch: Command) -> None:
    (priced.parent / "smdp-defaults.yaml").write_text("# the project's\nbudget:\n  max_usd: 4\n")
    for command in ("validate", "plan", "launch"):
        ran = smdp_launch(command)
        assert ran.returncode == ExitCode.JOB_FILE_REFUSED
        assert "error[SMDP803]: the job may cost 4.17 USD for 0.33 instance-hours" in ran.stderr
        assert " --> smdp-defaults.yaml:3:12\n" in ran.stderr
        assert "lower `compute.max_run` to 576 s at most" in ran.stderr
    assert codes(priced, "compute.max_run=576") == []
    assert codes(priced, "compute.max_run=577") == ["SMDP803"]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (["budget.max_usd=4.17"], []),
        (["budget.max_usd=4.16"], ["SMDP803"]),
        (["budget.max_usd=6", "compute.fallback_types=[ml.p3dn.24xlarge]"], ["SMDP803"]),  # 6.67 of the dearer type
        (["budget.max_usd=7", "compute.fallback_types=[ml.p3dn.24xlarge]"], []),
        (["budget.max_usd=8", "compute.keep_alive=600"], ["SMDP803"]),  # as much again
        (["budget.max_usd=9", "compute.keep_alive=600"], []),
        (["budget.max_usd=9", "compute.fallback_types=[ml.p3.16xlarge]"], ["SMDP804"]),
        (["budget.max_usd=9", "budget.prices=null"], ["SMDP804"]),
        (["budget.max_usd=9", "budget.prices=nowhere.yaml"], ["SMDP802"]),
        (["budget.max_usd=0"], ["SMDP204"]),
    ],
)
def test_cost_limit_uses_max_run_and_most_expensive_type(priced: Path, settings: list[str], wanted: list[str]) -> None:
    assert [one for one in codes(priced, *settings) if one.startswith(("SMDP80", "SMDP2"))] == wanted


def test_local_run_ignores_the_budget(priced: Path) -> None:
    assert codes(priced, "budget.max_usd=1", local=LocalRequest()) == []
    assert codes(priced, "budget.max_usd=1", "budget.prices=null", local=LocalRequest()) == []


def test_saved_plan_keeps_its_price(priced: Path, tmp_path: Path) -> None:
    made = plan_of(priced)
    save(made, tmp_path / "plan.json")
    (tmp_path / "prices.yaml").unlink()
    assert load(tmp_path / "plan.json").billing == made.billing
    assert made.billing.usd == pytest.approx(12.5 / 3)


def test_placeholder_region_needs_no_price(priced: Path, smdp_launch: Command) -> None:
    """A launch waits until it is filled in."""
    settings = ("budget.max_usd=5", f"region={REGION}")
    assert codes(priced, *settings) == []
    ran = smdp_launch("launch", "--yes", *(word for one in settings for word in ("--set", one)))
    assert ran.returncode == ExitCode.REFUSED
    assert "region" in ran.stderr
