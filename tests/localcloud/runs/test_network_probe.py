"""The probe of the network in local jobs: `probe`, `launch --require-network`, and what the views show of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.catalog.instances import instances
from smdp_launch.errors import ExitCode
from smdp_launch.run_metrics.network import NetworkReport
from tests.conftest import JOB, Command, write_job
from tests.support.isolation import shaping_refusal
from tests.support.json_documents import SCHEMAS, the_document

needs_links = pytest.mark.skipif(shaping_refusal() is not None, reason=str(shaping_refusal()))
SMALL = ["--local", "--hosts", "2", "--workers-per-host", "1", "--network", "100mbit"]
# The machine may be busy: the rounds end early when the hosts have answered.
PATIENT = ["--set", 'environment.SMDP_NETWORK_PROBE_S="60"', "--set", 'environment.SMDP_NETWORK_WAIT_S="90"']
# The hosts believe that their links have ten times the speed that they have.
TOO_SLOW = ["--set", 'environment.SMDP_NETWORK_GBIT="1"']
WAITS = "import time\ntime.sleep(600)\n"


@needs_links
@pytest.mark.runs
def test_probe_prints_each_link_and_runs_no_script(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, JOB, "raise ValueError('the script ran')\n")
    ran = smdp_launch("probe", *SMALL, *PATIENT)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines() if " eth0 " in line]
    assert [(row[0], row[1], row[-1]) for row in rows] == [("algo-1", "algo-2", "ok"), ("algo-2", "algo-1", "ok")]
    assert "no problem" in ran.stdout


@needs_links
@pytest.mark.runs
def test_probe_of_slow_links_fails_with_a_document(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder)
    ran = smdp_launch("probe", *SMALL, *PATIENT, *TOO_SLOW, "--json")
    assert ran.returncode == ExitCode.JOB_FAILED
    document = the_document(ran, "probe")
    assert "SMDP901" in document["outcome"]["reason"]
    assert document["network"]["met"] is False
    assert [one["hosts"] for one in document["network"]["problems"]] == [["algo-1", "algo-2"]]
    assert {one["verdict"] for one in document["network"]["links"]} == {"slow"}


@pytest.mark.runs
@needs_links
def test_requirement_ends_a_job_and_the_views_name_the_hosts(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, JOB, WAITS)
    ran = smdp_launch("launch", *SMALL, *PATIENT, *TOO_SLOW, "--require-network", "80%", "--report", "run.html")
    assert ran.returncode == ExitCode.JOB_FAILED
    assert "SMDP901: the network is below the required 80 % of 1 Gbit/s" in ran.stdout
    shown = smdp_launch("status", "--json")
    document = the_document(shown, "status")
    assert document["outcome"]["reason"].startswith("AlgorithmError: SMDP901: ")
    assert document["network"]["problems"][0]["hosts"] == ["algo-1", "algo-2"]
    assert "the link between algo-1 and algo-2 is slow" in smdp_launch("status").stdout
    assert "Network at the start" in (job_folder / "run.html").read_text()
    event = json.loads(next(line for line in smdp_launch("metrics").stdout.splitlines() if '"network"' in line))
    assert event["met"] is False


@pytest.mark.parametrize(
    ("arguments", "job", "code", "message"),
    [
        (["probe", "--local"], JOB, ExitCode.ENVIRONMENT, "--network 1gbit"),
        (["probe"], JOB.replace("instance_count: 2", "instance_count: 1"), ExitCode.REFUSED, "use two hosts or more"),
        (["probe", "--network", "1gbit"], JOB, ExitCode.USAGE, "--network requires --local"),
        (["probe"], JOB, ExitCode.REFUSED, "add --yes"),
        (["launch", "--require-network", "much"], JOB, ExitCode.USAGE, "such as 80%"),
        (["plan", "--set", "network.require=101%"], JOB, ExitCode.JOB_FILE_REFUSED, "a share from 1% to 100%"),
    ],
)
def test_impossible_probe_says_why(
    smdp_launch: Command, job_folder: Path, arguments: list[str], job: str, code: ExitCode, message: str
) -> None:
    write_job(job_folder, job)
    ran = smdp_launch(*arguments)
    assert ran.returncode == code
    assert message in ran.stderr


def test_plan_of_a_probe_has_no_data_and_a_limit(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, f"{JOB}checkpoint: {{s3: 's3://bucket/checkpoints'}}\n")
    request = json.loads(smdp_launch("probe", "--dry-run", "--json").stdout)["request"]
    assert request["Environment"]["SMDP_NETWORK_ONLY"] == "1"
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == 300
    assert not {"InputDataConfig", "CheckpointConfig"} & set(request)
    assert request["ResourceConfig"]["InstanceType"] == "ml.p4d.24xlarge"
    assert request["TrainingJobName"].startswith("small-probe-")


def test_local_run_without_links_says_that_the_requirement_is_not_checked(
    smdp_launch: Command, job_folder: Path
) -> None:
    write_job(job_folder)
    ran = smdp_launch("launch", "--local", "--hosts", "2", "--require-network", "80%", "--dry-run")
    assert "network.require 80%: the links of the hosts have no speed; pass --network SPEED" in ran.stdout


def test_rates_in_the_image_are_those_of_the_catalog() -> None:
    from smdp_entrypoint.network.figures import INSTANCES

    known = {one.name: (one.network_gbit, one.efa_interfaces) for one in instances()}
    assert {name: (one.gbit, one.cards) for name, one in INSTANCES.items()} == known


@pytest.mark.parametrize("links", [None, 7, [None, {"from": 1}], [{"gbit": "fast", "share": True}]])
def test_malformed_event_gives_a_report(links: object) -> None:
    report = NetworkReport.of({"links": links, "problems": links, "seconds": "long", "met": "yes"})
    assert report.met is None
    assert report.summary()
    assert set(report.to_json()) <= set(json.loads(SCHEMAS["probe"].read_text())["properties"]["network"]["properties"])
