"""`deploy`, `invoke`, `endpoints` and `undeploy` with a local job, as a person types them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, command_in, write_job
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.json_documents import the_document
from tests.support.serving.served import BREAKS, SAVES, served_job
from tests.support.waiting import wait_for

HERE = ["--local", "--hosts", "1", "--workers-per-host", "1"]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ended local job."""
    folder = tmp_path_factory.mktemp("verbs")
    served_job(folder)
    ran = command_in(folder)("launch", *HERE)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.splitlines()[-1].split(maxsplit=1) == [
        "next",
        "smdp-launch deploy --local, or smdp-launch download",
    ]
    return folder


@pytest.fixture
def run(trained: Path) -> Command:
    return command_in(trained)


def running(folder: Path) -> Any:
    return json.loads(command_in(folder)("local", "status", "--json").stdout)


def test_model_is_deployed_answers_and_is_deleted(trained: Path, run: Command) -> None:
    deployed = run("deploy", "--local", "--json")
    assert deployed.returncode == ExitCode.OK, deployed.stderr
    document = the_document(deployed, "deploy")
    name = document["endpoint"]
    assert (document["status"], document["where"], document["deletes_itself"]) == ("InService", "local", False)

    (trained / "request.json").write_text("[1, 2, 3]")
    answer = run("invoke", "request.json")
    assert (answer.returncode, json.loads(answer.stdout)) == (ExitCode.OK, ["trained", 3])
    to_file = run("invoke", name, "request.json", "--output", "answer.json")
    assert (to_file.returncode, to_file.stdout) == (ExitCode.OK, "")
    assert json.loads((trained / "answer.json").read_text()) == ["trained", 3]

    (trained / "number.json").write_text("3")
    failed = run("invoke", "number.json")
    assert (failed.returncode, failed.stdout) == (ExitCode.SERVICE, "")
    assert "failed with status 500: predict_fn failed: TypeError: len() of unsized object" in failed.stderr
    assert "    return [model, len(data)]\n" in failed.stderr  # the traceback, from the container's log
    assert "stopping" not in failed.stderr

    (listed,) = the_document(run("endpoints", "--json"), "endpoints")["list"]
    assert (listed["endpoint"], listed["status"], listed["kind"]) == (name, "InService", "realtime")
    assert 7000 < listed["left_s"] <= 7200
    assert "InService" in run("endpoints").stdout

    again = run("deploy", "--local")
    assert (again.returncode, "deployed already with the same settings" in again.stderr) == (ExitCode.OK, True)
    other = run("deploy", "--local", "--set", "serve.instance_type=ml.m5.xlarge")
    assert (other.returncode, f"smdp-launch undeploy {name}" in other.stderr) == (ExitCode.REFUSED, True)

    deleted = the_document(run("undeploy", "--json"), "undeploy")
    assert [one.split()[0] for one in deleted["deleted"]] == ["endpoint", "endpoint", "model", "packed"]
    assert deleted["left"] == {}
    second = run("undeploy")
    assert (second.returncode, "nothing was deleted" in second.stdout) == (ExitCode.OK, True)
    assert the_document(run("endpoints", "--json"), "endpoints")["list"] == []
    assert running(trained)["running"] == []
    assert_nothing_runs(str(trained / STATE_FOLDER))


def test_dry_run_shows_the_exact_requests_and_creates_nothing(run: Command) -> None:
    shown = run("deploy", "--local", "--dry-run")
    assert shown.returncode == ExitCode.OK, shown.stderr
    for operation in ("CreateModel", "CreateEndpointConfig", "CreateEndpoint"):
        assert f"\n{operation}\n{{\n" in shown.stdout
    document = the_document(run("deploy", "--local", "--dry-run", "--json"), "deploy")
    assert document["status"] is None
    assert list(document["requests"]) == ["CreateModel", "CreateEndpointConfig", "CreateEndpoint"]
    assert the_document(run("endpoints", "--json"), "endpoints")["list"] == []


def test_model_that_cannot_be_loaded_leaves_nothing_and_shows_the_log(trained: Path, run: Command) -> None:
    script = trained / "src" / "inference.py"
    before = script.read_text()
    script.write_text(BREAKS)
    try:
        failed = run("deploy", "--local", "--set", "serve.startup_timeout=60")
    finally:
        script.write_text(before)
    assert failed.returncode == ExitCode.JOB_FAILED, failed.stderr
    assert "ValueError: no such weights" in failed.stderr
    assert "nothing of the deployment is left: deleted endpoint" in failed.stderr
    assert the_document(run("endpoints", "--json"), "endpoints")["list"] == []
    assert running(trained)["running"] == []


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["serverless", "async"])
def test_endpoint_of_another_kind_answers(trained: Path, run: Command, kind: str) -> None:
    keys = {"kind": kind, "content_type": "application/json"}
    keys |= {"instance_type": "null", "memory_mb": "2048"} if kind == "serverless" else {}
    settings = [part for key, value in keys.items() for part in ("--set", f"serve.{key}={value}")]
    made = run("deploy", "--local", *settings)
    assert made.returncode == ExitCode.OK, made.stderr
    (trained / "request.data").write_text("[1, 2, 3]")
    answer = run("invoke", "request.data")
    assert (answer.returncode, json.loads(answer.stdout)) == (ExitCode.OK, ["trained", 3])
    as_csv = run("invoke", "request.data", "--accept", "text/csv")
    assert (as_csv.returncode, as_csv.stdout) == (ExitCode.OK, "trained\n3\n")
    (trained / "wrong.data").write_text("no json")
    wrong = run("invoke", "wrong.data", "--timeout", "60")
    assert (wrong.returncode, "The body is not application/json" in wrong.stderr) == (ExitCode.SERVICE, True)
    if kind == "serverless":
        (trained / "large.data").write_bytes(b" " * 5_000_000)
        large = run("invoke", "large.data")
        assert (large.returncode, "a serverless endpoint accepts 4,194,304 bytes" in large.stderr) == (
            ExitCode.REFUSED,
            True,
        )
    assert the_document(run("undeploy", "--json"), "undeploy")["left"] == {}
    assert running(trained)["running"] == []


@pytest.mark.runs
def test_batch_transform_answers_all_objects(trained: Path, run: Command) -> None:
    (trained / "new").mkdir()
    for name, content in (("a.json", "[1, 2]"), ("b.json", "[1, 2, 3]")):
        (trained / "new" / name).write_text(content)
    keys = {"kind": "batch", "lifetime": "null", "input": "s3://bucket/new", "content_type": "application/json"}
    batch = [part for key, value in keys.items() for part in ("--set", f"serve.{key}={value}")]
    warned = run("deploy", "--local", "--dry-run", *batch, "--set", "serve.batch_strategy=SingleRecord")
    assert "warning[SMDP832]: `batch_strategy` has no effect" in warned.stderr
    made = run("deploy", "--local", "--input", "new", *batch)
    assert made.returncode == ExitCode.OK, made.stderr
    folder = trained / made.stdout.splitlines()[-1].rpartition("answers in ")[2]
    answers = {one.name: json.loads(one.read_text()) for one in folder.rglob("*.out")}
    assert answers == {"a.json.out": ["trained", 2], "b.json.out": ["trained", 3]}
    (listed,) = the_document(run("endpoints", "--json"), "endpoints")["list"]
    assert (listed["kind"], listed["status"]) == ("batch", "Completed")
    (trained / "next").mkdir()
    (trained / "next" / "c.json").write_text("[1]")
    second = run("deploy", "--local", "--input", "next", *batch)
    assert second.returncode == ExitCode.OK, second.stderr
    folder = trained / second.stdout.splitlines()[-1].rpartition("answers in ")[2]
    assert [one.name for one in folder.rglob("*.out")] == ["c.json.out"]  # not those of the first input
    assert the_document(run("undeploy", "--json"), "undeploy")["left"] == {}
    (trained / "request.json").write_text("[1]")
    refused = run("invoke", "request.json")
    assert (refused.returncode, "is a batch transform" in refused.stderr) == (ExitCode.REFUSED, True)
    deleted = the_document(run("undeploy", "--json"), "undeploy")
    assert [one.split()[0] for one in deleted["deleted"]] == ["model", "packed"]
    assert running(trained)["running"] == []


@pytest.mark.runs
def test_undeploy_with_a_closed_output_ends_the_local_cloud(trained: Path, run: Command) -> None:
    assert run("deploy", "--local").returncode == ExitCode.OK
    ended = subprocess.run(
        ["bash", "-c", f"{LAUNCHER} undeploy | true"], cwd=trained, env=clean_environment(), timeout=120, check=False
    )
    assert ended.returncode == 0
    wait_for(lambda: running(trained)["announced"] is False, "the end of the local cloud")


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["deploy"], ExitCode.REFUSED, "ran on this machine: add --local"),
        (["deploy", "--local", "--ttl", "soon"], ExitCode.USAGE, "write one such as 30m, 2h or 1d"),
        (["deploy", "--local", "--set", "serve.kind=fast"], ExitCode.JOB_FILE_REFUSED, "SMDP204"),
        (["invoke", "one", "two", "three"], ExitCode.USAGE, "too many arguments"),
        (["invoke", "request.json"], ExitCode.REFUSED, "no endpoint of this folder exists"),
        (["undeploy", "other"], ExitCode.REFUSED, "there is no endpoint other"),
    ],
)
def test_refusal_says_what_to_write(run: Command, arguments: list[str], code: ExitCode, reason: str) -> None:
    ran = run(*arguments)
    assert (ran.returncode, reason in ran.stderr) == (code, True), ran.stderr


def test_job_file_without_serve_is_refused(trained: Path, run: Command) -> None:
    other = write_job(trained / "other", JOB, SAVES)
    ran = run("deploy", "--local", "--file", str(other))
    assert (ran.returncode, "has no section `serve`" in ran.stderr) == (ExitCode.REFUSED, True)


def test_error_of_the_job_file_is_shown_once(run: Command) -> None:
    refused = run("deploy", "--local", "--set", "serve.lifetime=10")
    assert (refused.returncode, refused.stderr.count("must be at least 60")) == (ExitCode.JOB_FILE_REFUSED, 1)


def test_ttl_is_the_lifetime(run: Command) -> None:
    document = the_document(run("deploy", "--local", "--dry-run", "--json", "--ttl", "30m"), "deploy")
    (tag,) = [one for one in document["requests"]["CreateModel"]["Tags"] if one["Key"] == "smdp-launch:expires"]
    assert document["expires"].startswith(tag["Value"])


WAITS = (
    "import time\nfrom pathlib import Path\n\n\ndef model_fn(model_dir):\n    print('loading', flush=True)\n"
    "    while not Path({go!r}).exists():\n        time.sleep(0.05)\n    return len\n"
)


@pytest.mark.runs
@pytest.mark.parametrize(("answer", "stays"), [("k", True), ("d", False), (None, False)])
def test_ctrl_c_on_a_terminal_asks_whether_to_keep_the_endpoint(
    trained: Path, run: Command, tmp_path: Path, answer: str | None, *, stays: bool
) -> None:
    """None stands for a second Ctrl-C. The model loads when the test lets it, and the endpoint is Creating before."""
    script, go = trained / "src" / "inference.py", tmp_path / "go"
    before = script.read_text()
    script.write_text(WAITS.format(go=str(go)))
    try:
        screen = pexpect.spawn(
            str(LAUNCHER),
            ["deploy", "--local"],
            cwd=trained,
            env=clean_environment(TERM="xterm", SMDP_LOCAL_ISOLATION="tree"),
            encoding="utf-8",
            timeout=120,
            dimensions=(50, 140),
        )
        screen.expect(": Creating")
        screen.sendintr()
        screen.expect(r"\[d\]elete it, \[k\]eep it and exit: ")
        screen.sendline(answer) if answer is not None else screen.sendintr()
        if not stays:
            screen.expect("cannot be deleted before it has started")
        go.touch()
        screen.expect(pexpect.EOF)
        screen.close()
    finally:
        script.write_text(before)
        go.touch()
    assert screen.exitstatus == ExitCode.INTERRUPTED
    said = "undeploy` deletes it" if stays else "nothing of the deployment is left: deleted endpoint"
    assert said in str(screen.before)
    assert len(the_document(run("endpoints", "--json"), "endpoints")["list"]) == int(stays)
    if stays:
        assert the_document(run("undeploy", "--json"), "undeploy")["left"] == {}
    assert running(trained)["running"] == []
