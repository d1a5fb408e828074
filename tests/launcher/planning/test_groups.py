"""The plan of a job with several instance groups: its request, its hosts and its cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import local_run, make_plan
from smdp_launch.planning.saved import load, save
from smdp_launch.planning.summary import summary
from tests.conftest import JOB, write_job

GROUPS = """  max_run: 7200
  group_name: gpus
  other_groups:
    data: {instance_type: ml.c5.18xlarge, instance_count: 3}
    actors: {instance_type: ml.c5.18xlarge, instance_count: 1}
"""
PRICES = """date: 2026-11-01
source: the test's table
prices: {us-east-1: {ml.p4d.24xlarge: 30.0, ml.c5.18xlarge: 3.0}}
"""
SCRIPT = "import os\nimport torch\ntorch.cuda.is_available()\nprint(os.environ['SM_CURRENT_INSTANCE_GROUP'])\n"


def job_with_groups(folder: Path, more: str = "") -> Path:
    (folder / "prices.yaml").write_text(PRICES)
    text = JOB.replace("  max_run: 600\n", GROUPS) + "budget: {prices: prices.yaml}\n" + more
    return write_job(folder, text, SCRIPT)


def plan_with_groups(folder: Path, more: str = "") -> Plan:
    return make_plan(check_job(job_with_groups(folder, more), environ={}))


def test_request_has_the_groups_and_no_type_beside_them(tmp_path: Path) -> None:
    request = plan_with_groups(tmp_path).request
    assert request["ResourceConfig"] == {
        "VolumeSizeInGB": 30,
        "InstanceGroups": [
            {"InstanceGroupName": "gpus", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
            {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 3},
            {"InstanceGroupName": "actors", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 1},
        ],
    }
    assert request["HyperParameters"]["sagemaker_distribution_instance_groups"] == '["gpus"]'
    assert request["HyperParameters"]["sagemaker_instance_type"] == "null"


def test_channel_names_its_groups(tmp_path: Path) -> None:
    text = JOB.replace("  max_run: 600\n", GROUPS).replace(
        "channels:\n", "channels:\n  rows: {s3: s3://bucket/rows, groups: [data, gpus]}\n"
    )
    request = make_plan(check_job(write_job(tmp_path, text, SCRIPT), environ={})).request
    sources = {one["ChannelName"]: one["DataSource"]["S3DataSource"] for one in request["InputDataConfig"]}
    assert sources.pop("rows")["InstanceGroupNames"] == ["data", "gpus"]
    assert sources
    assert all("InstanceGroupNames" not in one for one in sources.values())


def test_ranks_are_on_the_hosts_that_train(tmp_path: Path) -> None:
    plan = plan_with_groups(tmp_path)
    assert (plan.hosts, plan.workers_per_host, len(plan.ranks)) == (6, 8, 16)
    assert {one.host for one in plan.ranks} == {"algo-1", "algo-2"}


def test_cost_is_the_sum_of_the_groups(tmp_path: Path) -> None:
    plan = plan_with_groups(tmp_path)
    assert plan.billing.instance_hours == 12
    assert plan.billing.usd == pytest.approx(2 * (2 * 30 + 4 * 3))
    rows = dict(summary(plan))
    assert "144.00 USD at 72 an hour for all hosts" in rows["cost"]


def test_summary_shows_the_hosts_of_each_group(tmp_path: Path) -> None:
    rows = summary(plan_with_groups(tmp_path))
    first = rows.index(("hosts", "2 x ml.p4d.24xlarge, 8 x A100 40 GB each, gpus"))
    assert rows[first + 1 : first + 3] == [
        ("", "3 x ml.c5.18xlarge, data: not workers"),
        ("", "1 x ml.c5.18xlarge, actors: not workers"),
    ]


def test_budget_counts_all_groups(tmp_path: Path) -> None:
    path = job_with_groups(tmp_path)
    path.write_text(path.read_text().replace("budget: {", "budget: {max_usd: 143, "))
    assert [one.code for one in check_job(path, environ={}).diagnostics] == ["SMDP803"]
    path.write_text(path.read_text().replace("max_usd: 143", "max_usd: 145"))
    assert check_job(path, environ={}).diagnostics == ()


def test_saved_plan_has_the_same_groups_and_cost(tmp_path: Path) -> None:
    plan = plan_with_groups(tmp_path)
    save(plan, tmp_path / "plan.json")
    saved = load(tmp_path / "plan.json")
    assert (saved.request, saved.ranks, saved.hosts) == (plan.request, plan.ranks, 6)
    assert saved.billing.usd == pytest.approx(plan.billing.usd)


def test_local_run_has_hosts_of_each_group(tmp_path: Path) -> None:
    job = check_job(job_with_groups(tmp_path), LocalRequest(), environ={})
    local = local_run(job, LocalRequest(hosts=3, workers_per_host=2), cores=8)
    plan = make_plan(job, local=local)
    counts = {
        one["InstanceGroupName"]: one["InstanceCount"] for one in plan.request["ResourceConfig"]["InstanceGroups"]
    }
    assert counts == {"gpus": 3, "data": 3, "actors": 1}
    assert "InstanceCount" not in plan.request["ResourceConfig"]
    assert (plan.hosts, len(plan.ranks), plan.workers_per_host) == (7, 6, 2)
    assert plan.to_json()["local"]["other_hosts"] == {"data": 3, "actors": 1}
