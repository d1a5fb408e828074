"""Rehearsals of an endpoint: what its caller sees, the verdict, and that nothing is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog.hosting.faults import EndpointFault
from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from smdp_launch.rehearsals.endpoint.caller import Call, answered_since, answers_nothing, errors, longest_gap
from smdp_launch.rehearsals.endpoint.report import judge
from smdp_launch.rehearsals.endpoint.run import Line, Observed
from smdp_launch.serving.plan import ServingPlan, serving_plan
from tests.conftest import Command, command_in
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.json_documents import the_document
from tests.support.serving.served import NAME, served_job

HERE = ["--local", "--hosts", "1", "--workers-per-host", "1"]
REFUSED = "ServiceUnavailable (503): busy"
ASKED = ["--request", "request.json"]
#: The second start of the container fails. The host's folder for temporary files outlives a container.
ONCE = (
    "import os\nimport tempfile\n\n\ndef model_fn(model_dir):\n    path = tempfile.gettempdir() + '/started'\n"
    "    if os.path.exists(path):\n        raise ValueError('no second start')\n    open(path, 'w').close()\n"
    "    return 1\n\n\ndef predict_fn(data, model):\n    return data\n"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ended local job."""
    folder = tmp_path_factory.mktemp("rehearsed")
    served_job(folder)
    (folder / "request.json").write_text("[1, 2, 3]")
    ran = command_in(folder)("launch", *HERE)
    assert ran.returncode == ExitCode.OK, ran.stderr
    return folder


@pytest.fixture
def run(trained: Path) -> Command:
    return command_in(trained)


def rows(report: Any, section: str = "evidence") -> dict[str, str]:
    return {one["name"]: one["value"] for one in report[section] if one["name"]}


def assert_nothing_is_left(folder: Path) -> None:
    found = json.loads(command_in(folder)("endpoints", "--json").stdout)
    assert found["list"] == []
    for kind in ("models", "endpoint-configs"):
        assert not list((folder / STATE_FOLDER).rglob(f"resources/{kind}/*/*.json"))
    assert not list((folder / STATE_FOLDER).rglob("serve/model-*.tar.gz"))
    assert_nothing_runs(str(folder / STATE_FOLDER))


def test_overload_is_reported_as_its_caller_sees_it(trained: Path, run: Command) -> None:
    ran = run("rehearse", "overload", *ASKED, "--after", "0", "--for", "0.5", "--json", "--report", "page.html")
    assert ran.returncode == ExitCode.OK, ran.stderr
    report = the_document(ran, "rehearsal")
    assert (report["kind"], report["verdict"], report["workers_per_host"]) == ("overload", "PASS", None)
    assert report["fault"] == {"kind": "overload", "after": 0.0, "seconds": 0.5}
    evidence = rows(report)
    assert "fault injected: requests are refused for 0.5 s" in evidence["log"]
    assert "x ServiceUnavailable (503): Endpoint" in evidence["failed"]
    assert evidence["left"] == "nothing"
    assert [one["name"] for one in report["timeline"]["attempts"][0]][-3:] == ["InService", "Deleting", "Deleted"]
    assert "SMDP_LOCAL_ENDPOINT_FAULT" not in json.dumps(report["honoured"])
    page = (trained / "page.html").read_text(encoding="utf-8")
    assert "rehearsal of overload" in page
    assert "ServiceUnavailable (503)" in page
    assert "overload PASS" in run("plan").stdout
    assert_nothing_is_left(trained)


@pytest.mark.runs
@pytest.mark.parametrize("hosts", [1, 2])
def test_crash_is_survived(trained: Path, run: Command, hosts: int) -> None:
    ran = run("rehearse", "crash", *ASKED, "--set", f"serve.instance_count={hosts}", "--json")
    report = the_document(ran, "rehearsal")
    assert (ran.returncode, report["verdict"], report["hosts"]) == (ExitCode.OK, "PASS", hosts), ran.stderr
    lines = [one["text"] for one in report["timeline"]["strikes"]]
    assert lines == [
        "fault injected: the container is killed",
        "The container exited with code 137; it is started again in 0.5 s",
    ]
    assert rows(report)["left"] == "nothing"
    assert_nothing_is_left(trained)


@pytest.mark.runs
def test_container_that_does_not_start_again_fails(trained: Path, run: Command) -> None:
    script = trained / "src" / "inference.py"
    before = script.read_text()
    script.write_text(ONCE)
    try:
        one = ["--set", "serve.environment={SAGEMAKER_MODEL_SERVER_WORKERS: '1'}"]
        ran = run("rehearse", "crash", *ASKED, "--after", "0", "--within", "5", *one)
    finally:
        script.write_text(before)
    assert ran.returncode == ExitCode.REHEARSAL_FAILED, ran.stderr
    assert "FAIL  the endpoint did not answer again within 5 s after the fault" in ran.stdout
    assert "ValueError: no second start" in ran.stdout
    assert "next: fix the cause, then: smdp-launch rehearse crash --request request.json" in ran.stderr
    assert_nothing_is_left(trained)


@pytest.mark.runs
def test_slow_start_passes_in_time_and_fails_after_it(trained: Path, run: Command) -> None:
    ran = run("rehearse", "slow-start", *ASKED, "--for", "2", "--json")
    report = the_document(ran, "rehearsal")
    assert (ran.returncode, report["verdict"]) == (ExitCode.OK, "PASS"), ran.stderr
    assert "x ValidationError (400): Endpoint" in rows(report)["before"]
    limit = ["--set", "serve.environment={SMDP_LOCAL_STARTUP_TIMEOUT_S: '1'}"]
    failed = run("rehearse", "slow-start", *ASKED, "--for", "600", "--json", *limit)
    report = the_document(failed, "rehearsal")
    assert (failed.returncode, report["verdict"]) == (ExitCode.REHEARSAL_FAILED, "FAIL")
    assert report["reason"].endswith("The container did not answer its health check within 1 s.")
    assert rows(report)["left"] == "nothing"
    assert_nothing_is_left(trained)


@pytest.mark.runs
def test_request_that_the_model_refuses_is_inconclusive(trained: Path, run: Command) -> None:
    (trained / "wrong.json").write_text("no json")
    ran = run("rehearse", "crash", "--request", "wrong.json")
    assert ran.returncode == ExitCode.REHEARSAL_FAILED
    assert "INCONCLUSIVE  the model answered no request" in ran.stdout
    assert "The body is not application/json" in ran.stdout
    assert "next: use a request that the model answers" in ran.stderr
    assert_nothing_is_left(trained)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["crash"], ExitCode.USAGE, "Missing option '--request'"),
        (["crash", "--request", "none.json"], ExitCode.USAGE, "'none.json' does not exist"),
        (["crash", *ASKED, "--job", "other"], ExitCode.REFUSED, "there is no job other"),
        (["crash", *ASKED, "--set", "serve.kind=async"], ExitCode.REFUSED, "--set serve.kind=realtime"),
        (["overload", *ASKED, "--for", "-1"], ExitCode.USAGE, "--for"),
        (["crash", *ASKED, "--report", "none/page.html"], ExitCode.ENVIRONMENT, "cannot be written"),
    ],
)
def test_wrong_option_is_refused_before_anything_starts(
    run: Command, arguments: list[str], code: ExitCode, reason: str
) -> None:
    ran = run("rehearse", *arguments)
    assert (ran.returncode, reason in ran.stderr) == (code, True), ran.stderr


def test_folder_without_a_local_job_is_refused(tmp_path: Path) -> None:
    served_job(tmp_path)
    (tmp_path / "request.json").write_text("[1]")
    ran = command_in(tmp_path)("rehearse", "crash", *ASKED)
    assert (ran.returncode, "smdp-launch launch --local" in ran.stderr) == (ExitCode.REFUSED, True), ran.stderr


def call(sent: float, error: str = "") -> Call:
    return Call(sent, sent + 0.5, error)


def test_gap_is_from_one_answer_to_the_next() -> None:
    calls = [call(1), call(2, REFUSED), call(3, REFUSED), call(4), call(5)]
    assert (longest_gap(calls), errors(calls)) == (3.0, [(REFUSED, 2)])
    assert longest_gap(calls[1:]) == 2.5  # the first request failed
    assert longest_gap([call(1), call(9)]) == 0.0  # nothing failed between these


def test_recovery_needs_answers_in_a_row_after_the_moment() -> None:
    calls = [call(1), call(2, REFUSED), call(3), call(4)]
    assert answered_since(calls, 2.5, 2)
    assert not answered_since(calls, 2.5, 3)
    assert not answered_since(calls, 3.5, 2)


def test_model_that_fails_for_every_request_answers_nothing() -> None:
    failing = [call(one, "ModelError (424): no") for one in range(3)]
    assert answers_nothing(failing, 3)
    assert not answers_nothing([call(0), *failing], 3)
    assert not answers_nothing([*failing, call(4, REFUSED)], 3)


@pytest.fixture
def plan(tmp_path: Path) -> ServingPlan:
    checked = check_job(served_job(tmp_path), environ={})
    return serving_plan(checked, NAME, "local", "s3://bucket/model.tar.gz")


def seen(**changes: Any) -> Observed:
    """An endpoint in service at 1, with a crash at 3 and answers again at 6."""
    values: dict[str, Any] = {
        "statuses": [(0.0, "Creating"), (1.0, "InService"), (9.0, "Deleting"), (9.5, "Deleted")],
        "in_service": 1.0,
        "lines": [Line(3.0, "i-1", "fault injected: the container is killed"), Line(3.1, "i-1", "it is started again")],
        "calls": [call(2), call(3, REFUSED), call(4, REFUSED), call(6), call(7)],
        "recovered": 6.0,
    }
    return Observed(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({}, "PASS", "2 of 5 requests failed, and it did not answer for 4.0 s"),
        ({"calls": [call(2), call(4)]}, "PASS", "2 requests in service were all answered"),
        ({"recovered": None}, "FAIL", "did not answer again within 60 s after the fault; 2 of 5 requests failed"),
        ({"failure": "endpoint e failed: no weights"}, "FAIL", "endpoint e failed: no weights"),
        ({"left": {"model e": "throttled"}}, "FAIL", "model e is left"),
        ({"calls": [call(2, "ModelError (424): no")]}, "INCONCLUSIVE", "ModelError (424): no"),
        ({"lines": []}, "INCONCLUSIVE", "the fault was not injected"),
        ({"calls": [call(4, REFUSED)], "recovered": None}, "FAIL", "did not answer again within 60 s"),
    ],
    ids=["recovered", "no error", "not recovered", "not started", "left", "no answer", "no fault", "killed at once"],
)
def test_verdict_follows_from_what_was_seen(
    plan: ServingPlan, changes: dict[str, Any], verdict: str, reason: str
) -> None:
    found = judge(plan, EndpointFault("crash", after=2.0), seen(**changes), 60.0)
    assert (found[0], reason in found[1]) == (verdict, True), found
