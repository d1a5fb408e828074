"""`preflight`, and the checks of `launch` before its upload: every problem has a fix and can be ignored by its code."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest

import smdp_launch as library
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.preflight.run import CHECKS
from smdp_launch.testing import LocalCloud, local_cloud
from tests.conftest import JOB, ROOT, write_job
from tests.support import command
from tests.support.json_documents import the_document
from tests.support.services.faults import Fault, Proxy
from tests.support.services.faulty_service import first_of_each_two
from tests.support.terminal import on_a_terminal

NET = "network: {subnets: [subnet-00000000000000001], security_groups: [sg-00000000000000001]}\n"
NO_ROLES = "roles: {}\n"
NO_IMAGE = "images: []\n"  # the local cloud's CreateTrainingJob does not refuse it, unlike a missing role
Ran = subprocess.CompletedProcess[str]


@contextmanager
def ready() -> Iterator[LocalCloud]:
    """An account with the job's bucket and data."""
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="bucket")
        boto3.client("s3").put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        yield made


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with ready() as made:
        yield made


@pytest.fixture
def cloud(request: pytest.FixtureRequest, shared_cloud: LocalCloud, job_folder: Path) -> Iterator[LocalCloud]:
    """The account that the tests of this file share, or one for this test only."""
    if getattr(request, "param", "") == "its own":
        with ready() as made:
            yield made
        return
    (shared_cloud.state / "account.yaml").unlink(missing_ok=True)
    yield shared_cloud


launches = pytest.mark.parametrize("cloud", ["its own"], indirect=True)


@pytest.fixture
def run(cloud: LocalCloud, job_folder: Path) -> Callable[..., Ran]:
    """Run the command with that account."""

    def on_account(*arguments: str, account: str = "", job: str = JOB) -> Ran:
        write_job(job_folder, job)
        (cloud.state / "account.yaml").write_text(account)
        return command.run(job_folder, *arguments, env={**os.environ, "COLUMNS": "100"})

    return on_account


def states(document: dict[str, Any]) -> dict[str, str]:
    return {one["subject"]: one["state"] for one in document["checks"]}


def notes(document: dict[str, Any]) -> dict[str, str]:
    return {one["subject"]: one["note"] for one in document["checks"]}


def test_ready_account_passes_every_check(run: Callable[..., Ran]) -> None:
    ran = run("preflight", "--json", job=JOB + NET)
    assert ran.returncode == ExitCode.OK, ran.stderr
    document = the_document(ran, "preflight")
    assert document["passed"]
    assert [(one["number"], one["code"]) for one in document["checks"]] == [
        (number, one.code) for number, one in enumerate(CHECKS, 1)
    ]
    wanted = dict.fromkeys((one.subject for one in CHECKS), "ok")
    assert states(document) == wanted | {"image": "not checked", "FSx": "not checked", "EFS": "not checked"}


def test_all_problems_are_reported_at_once_with_a_fix(run: Callable[..., Ran]) -> None:
    account = f"{NO_ROLES}quotas: {{ml.p4d.24xlarge: 1}}\nimages: []\nsecurity_groups: {{sg-00000000000000001: {{}}}}\n"
    account += "subnets: {subnet-00000000000000001: {s3: false, addresses: 1}}\n"
    ran = run("preflight", account=account, job=JOB.replace("s3://bucket/", "s3://elsewhere/") + NET)
    assert ran.returncode == ExitCode.REFUSED
    codes = re.findall(r"^error\[(SMDP\d+)\]", ran.stderr, re.MULTILINE)
    assert codes == ["SMDP812", "SMDP813", "SMDP814", "SMDP816", "SMDP817", "SMDP818", "SMDP821"]
    assert len(re.findall(r"= help: ", ran.stderr)) == len(codes)
    assert "7 problems" in ran.stdout


@pytest.mark.parametrize(
    ("kind", "state"), [("ml.p3.16xlarge", "ok"), ("ml.p4d.24xlarge", "problem")], ids=["without EFA", "with EFA"]
)
def test_default_security_group_is_enough_except_for_efa(run: Callable[..., Ran], kind: str, state: str) -> None:
    """The default group of a new VPC: inbound all from itself, outbound all to every address."""
    account = "security_groups: {sg-00000000000000001: {inbound: [{ports: all, peer: sg-00000000000000001}]}}\n"
    ran = run("preflight", "--json", account=account, job=JOB.replace("ml.p4d.24xlarge", kind) + NET)
    assert states(the_document(ran, "preflight"))["hosts together"] == state


@pytest.mark.runs
@launches
def test_denied_call_is_a_note_and_no_error(run: Callable[..., Ran]) -> None:
    denied = "denied: ['iam:*', 'ecr:*', 'servicequotas:*', 'ec2:*', 'sts:*']"
    ran = run("preflight", "--json", account=denied, job=JOB + NET)
    document = the_document(ran, "preflight")
    assert ran.returncode == ExitCode.OK
    assert {one for one, state in states(document).items() if state == "ok"} == {
        *("buckets", "data", "training plan", "weekly budget", "checkpoints", "hosting quota")
    }
    assert notes(document)["network"] == "no permission for DescribeSubnets"
    assert notes(document)["role"] == "the account of your credentials is not known"
    assert run("launch", "--yes", account=denied).returncode == ExitCode.OK


def test_ignored_check_is_skipped(run: Callable[..., Ran]) -> None:
    assert run("preflight", account=NO_ROLES).returncode == ExitCode.REFUSED
    ran = run("preflight", "--ignore", "smdp812", "--json", account=NO_ROLES)
    assert ran.returncode == ExitCode.OK
    assert states(the_document(ran, "preflight"))["role"] == "ignored"


@pytest.mark.parametrize(
    ("account", "job", "code"),
    [
        (NO_ROLES, JOB, "SMDP812"),
        ("roles: {training: {trusts: [ec2.amazonaws.com]}}", JOB, "SMDP812"),
        ("images: []", JOB, "SMDP814"),
        ("", JOB.replace("s3://bucket/output", "s3://nowhere/output"), "SMDP813"),
    ],
)
def test_launch_is_refused_before_the_upload(
    run: Callable[..., Ran], cloud: LocalCloud, account: str, job: str, code: str
) -> None:
    before = objects(cloud)
    ran = run("launch", "--yes", account=account, job=job)
    assert ran.returncode == ExitCode.REFUSED
    assert f"error[{code}]" in ran.stderr
    assert f"launch with --ignore {code}" in ran.stderr.splitlines()[-1]
    assert objects(cloud) == before
    assert not list((cloud.state / "jobs").iterdir())


def objects(cloud: LocalCloud) -> set[str]:
    return {str(one) for one in (cloud.state / "s3").rglob("*")}


@pytest.mark.runs
@launches
def test_launch_continues_with_ignored_check(run: Callable[..., Ran]) -> None:
    ran = run("launch", "--yes", "--ignore", "SMDP814", account=NO_IMAGE)
    assert ran.returncode == ExitCode.OK, ran.stderr


@pytest.mark.runs
@launches
def test_from_python(cloud: LocalCloud, job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)
    (cloud.state / "account.yaml").write_text(NO_IMAGE)
    plan = library.plan(job_folder / "job.yaml")
    assert [one.code for one in library.preflight(plan).problems] == ["SMDP814"]
    assert library.preflight(job_folder / "job.yaml", ignore=["SMDP814"]).problems == []
    with pytest.raises(library.Refused) as refused:
        library.launch(plan)
    assert [one.code for one in refused.value.diagnostics] == ["SMDP814"]
    assert library.launch(plan, ignore=["SMDP814"]).wait(timeout=60).status == "Completed"


def test_unreachable_account_is_a_service_problem(run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    ran = run("preflight", "--json")
    assert ran.returncode == ExitCode.SERVICE
    assert "the account cannot be checked: Could not connect" in the_document(ran, "error")["message"]


@pytest.mark.parametrize(
    ("serve", "quota", "note"),
    [
        (
            "instance_type: ml.m5.large, instance_count: 2",
            "ml.m5.large for endpoint usage",
            "the quota is too small for 2 x ml.m5.large: limit 1, in use 0, needed 2",
        ),
        (
            "kind: serverless, concurrency: 3",
            "Maximum total concurrency that can be allocated across all serverless endpoints",
            "the quota is too small for 3 requests at a time: limit 1, in use 0, needed 3",
        ),
        (
            "kind: batch, instance_type: ml.m5.large, instance_count: 3, input: 's3://bucket/in'",
            "ml.m5.large for transform job usage",
            "the quota is too small for 3 x ml.m5.large: limit 1, in use 0, needed 3",
        ),
    ],
    ids=["endpoint", "serverless", "batch"],
)
def test_quota_of_the_hosting_is_checked(run: Callable[..., Ran], serve: str, quota: str, note: str) -> None:
    job = JOB + f"serve: {{image: mine/serving:1, {serve}}}\nsilence: [SMDP463, SMDP805]\n"
    ran = run("preflight", "--json", account=f"quotas: {{{quota}: 1}}\n", job=job)
    document = the_document(ran, "preflight")
    assert ran.returncode == ExitCode.REFUSED, ran.stderr
    assert states(document)["hosting quota"] == "problem"
    (problem,) = document["diagnostics"]
    assert (problem["code"], problem["message"]) == ("SMDP824", note)
    assert problem["help"].startswith(f"request an increase of '{quota}' in Service Quotas")


@pytest.mark.parametrize(("quota", "state"), [(2, "problem"), (3, "ok")])
def test_quota_of_every_group_is_needed(run: Callable[..., Ran], quota: int, state: str) -> None:
    groups = "  other_groups: {data: {instance_type: ml.c5.18xlarge, instance_count: 3}}\n"
    job = JOB.replace("  max_run: 600\n", f"  max_run: 600\n{groups}") + "silence: [SMDP336]\n"
    ran = run("preflight", "--json", account=f"quotas: {{ml.c5.18xlarge: {quota}}}\n", job=job)
    document = the_document(ran, "preflight")
    assert states(document)["quota"] == state
    if state == "problem":
        assert document["diagnostics"][0]["message"] == (
            "the quota is too small for 3 x ml.c5.18xlarge: ml.p4d.24xlarge: limit 1000, in use 0, needed 2; "
            "ml.c5.18xlarge: limit 2, in use 0, needed 3"
        )


@pytest.mark.runs
@launches
def test_running_jobs_count_towards_the_quota(
    run: Callable[..., Ran], cloud: LocalCloud, job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job_folder)
    (job_folder / "src" / "train.py").write_text("import time\ntime.sleep(600)\n")
    library.launch(library.plan(job_folder / "job.yaml"))
    ran = run("preflight", account="quotas: {ml.p4d.24xlarge: 3}")
    assert "the quota is too small for 2 x ml.p4d.24xlarge: limit 3, in use 2, needed 2" in ran.stderr


@pytest.mark.parametrize(
    ("denied", "message", "place"),
    [
        ("s3:Get*", "may not s3:GetObject on arn:aws:s3:::bucket/train/part-0", "s3://bucket/train"),
        ("s3:List*", "may not s3:ListBucket on arn:aws:s3:::bucket", "s3://bucket/train"),
        (
            "s3:PutObject",
            "may not s3:PutObject on arn:aws:s3:::bucket/output/JOB/output/model.tar.gz",
            "s3://bucket/output",
        ),
        (
            "ecr:BatchGetImage",
            "may not ecr:BatchGetImage on arn:aws:ecr:us-east-1:123456789012:repository/smdp-pytorch",
            "smdp-pytorch:2.0.1-cu118",
        ),
        (
            "logs:*",
            "may not logs:CreateLogStream, logs:PutLogEvents on "
            "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:log-stream:JOB/algo-1",
            "role/training",
        ),
    ],
    ids=["read", "list", "write", "pull", "logs"],
)
def test_missing_permission_names_action_and_resource(
    run: Callable[..., Ran], denied: str, message: str, place: str
) -> None:
    ran = run("preflight", "--json", account=f"roles: {{training: {{denied: ['{denied}']}}}}")
    assert ran.returncode == ExitCode.REFUSED
    document = the_document(ran, "preflight")
    assert states(document)["permissions"] == "problem"
    assert notes(document)["permissions"] == ""
    messages = [re.sub(r"small-\d{14}-[0-9a-f]{4}", "JOB", one["message"]) for one in document["diagnostics"]]
    assert f"the role training {message}" in messages
    found = document["diagnostics"][messages.index(f"the role training {message}")]
    assert found["code"] == "SMDP822"
    assert place in found["text"]
    assert found["help"].startswith("allow ")


def test_denied_permission_check_is_no_error(run: Callable[..., Ran]) -> None:
    account = "denied: ['iam:SimulatePrincipalPolicy']\nroles: {training: {denied: ['s3:*']}}"
    ran = run("preflight", "--json", account=account)
    assert ran.returncode == ExitCode.OK
    document = the_document(ran, "preflight")
    assert states(document)["permissions"] == "not checked"
    assert notes(document)["permissions"] == "no permission for SimulatePrincipalPolicy"


CHECKPOINT = 'checkpoint: {s3: "s3://bucket/checkpoints"}\n'
VPC_REGISTRY = "overlay: {AlgorithmSpecification: {TrainingImageConfig: {TrainingRepositoryAccessMode: Vpc}}}\n"
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com/"


@pytest.mark.parametrize(
    ("job", "note"),
    [
        (JOB, "reads the data, writes the output, pulls the image, writes logs"),
        (JOB + CHECKPOINT, "reads the data, writes the output, saves checkpoints, pulls the image, writes logs"),
        (
            JOB.replace(REGISTRY, "ghcr.io/someone/") + NET + VPC_REGISTRY,
            "reads the data, writes the output, writes logs, uses the VPC",
        ),
    ],
    ids=["ECR", "checkpoints", "elsewhere"],
)
def test_permission_check_covers_the_calls_of_the_job(run: Callable[..., Ran], job: str, note: str) -> None:
    document = the_document(run("preflight", "--json", job=job), "preflight")
    assert states(document)["permissions"] == "ok"
    assert notes(document)["permissions"] == note


DECISION = """\
<member>
  <EvalActionName>{action}</EvalActionName>
  <EvalResourceName>{resource}</EvalResourceName>
  <EvalDecision>{decision}</EvalDecision>
  <MissingContextValues/>
  <ResourceSpecificResults>
    <member>
      <EvalResourceName>{resource}</EvalResourceName>
      <EvalResourceDecision>{decision}</EvalResourceDecision>
      <MissingContextValues>{missing}</MissingContextValues>
    </member>
  </ResourceSpecificResults>
</member>"""


class Iam(BaseHTTPRequestHandler):
    """IAM with policies that the local cloud does not support. Resource results have the missing context keys."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        query = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        (resource,) = query["ResourceArns.member.1"]
        actions = [one for name, (one,) in query.items() if name.startswith("ActionNames.member.")]
        members = "".join(self.decision(action, resource) for action in actions)
        answer = (
            '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
            f"<SimulatePrincipalPolicyResult><EvaluationResults>{members}</EvaluationResults>"
            "<IsTruncated>false</IsTruncated></SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def decision(self, action: str, resource: str) -> str:
        raise NotImplementedError

    def log_message(self, *_: object) -> None: ...


class ConditionalIam(Iam):
    """Reading depends on a condition, and writing is denied."""

    def decision(self, action: str, resource: str) -> str:
        decision = {"s3:GetObject": "implicitDeny", "s3:PutObject": "explicitDeny"}.get(action, "allowed")
        missing = "<member>aws:SourceVpce</member>" if action == "s3:GetObject" else ""
        return DECISION.format(action=action, resource=resource, decision=decision, missing=missing)


class NarrowIam(Iam):
    """The role may write only below names with the prefix of the job, and has only the other permissions it needs."""

    ALLOWED = (
        "arn:aws:s3:::bucket",
        "arn:aws:s3:::bucket/train/*",
        "arn:aws:s3:::bucket/output/small-*/source/*.tar.gz",
        "arn:aws:s3:::bucket/output/small-*/output/*",
        "arn:aws:s3:::bucket/checkpoints/small-*/*",
        "arn:aws:ecr:us-east-1:123456789012:repository/smdp-pytorch",
        "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:log-stream:small-*",
    )

    def decision(self, action: str, resource: str) -> str:
        anywhere = action in ("ecr:GetAuthorizationToken", "logs:CreateLogGroup")
        allowed = anywhere or any(fnmatch.fnmatchcase(resource, one) for one in self.ALLOWED)
        decision = "allowed" if allowed else "implicitDeny"
        return DECISION.format(action=action, resource=resource, decision=decision, missing="")


@pytest.fixture
def iam(request: pytest.FixtureRequest, cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), request.param) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_IAM", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()


@pytest.mark.parametrize("iam", [NarrowIam], indirect=True)
@pytest.mark.usefixtures("iam")
def test_policy_for_the_job_name_is_enough(run: Callable[..., Ran]) -> None:
    ran = run("preflight", "--json", "--ignore", "SMDP812", job=JOB + CHECKPOINT)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert states(the_document(ran, "preflight"))["permissions"] == "ok"


@pytest.mark.parametrize("iam", [ConditionalIam], indirect=True)
@pytest.mark.usefixtures("iam")
def test_condition_with_unknown_value_is_a_note(run: Callable[..., Ran]) -> None:
    ran = run("preflight", "--json", "--ignore", "SMDP812")
    document = the_document(ran, "preflight")
    (found,) = document["diagnostics"]
    assert found["message"].startswith("the role training may not s3:PutObject on ")
    assert notes(document)["permissions"] == "not checked, they depend on conditions: s3:GetObject"


def test_throttled_checks_are_retried(cloud: LocalCloud, job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = library.plan(job_folder / "job.yaml")
    with Proxy(first_of_each_two(Fault.THROTTLED)).running() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")
        results = {one.subject: one for one in library.preflight(plan).results}
        assert proxy.faults[Fault.THROTTLED] > 5
        assert proxy.accepted["ListTrainingJobs"] == 1
    assert all(results[one].checked for one in ("identity", "role", "buckets", "data", "quota", "permissions"))


def test_guide_lists_every_check() -> None:
    page = (ROOT / "docs" / "how-to" / "preflight.md").read_text()
    assert re.findall(r"\| \[(SMDP\d+)\]", page) == [one.code for one in CHECKS]
    assert json.loads((ROOT / "docs" / "schemas" / "preflight.schema.json").read_text())


@pytest.mark.parametrize("columns", [80, 140])
def test_output_fits_the_terminal(run: Callable[..., Ran], cloud: LocalCloud, job_folder: Path, columns: int) -> None:
    run("validate", account=NO_ROLES)
    kept = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    shown = on_a_terminal(job_folder, ["preflight"], columns, NO_COLOR="1", **kept)
    assert re.search(r"^ 1 SMDP811 identity +ok: arn:aws:iam::", shown, re.MULTILINE)
    assert re.search(r"^ 2 SMDP812 role +problem: there is no role training", shown, re.MULTILINE)
    assert re.search(r"^ 7 SMDP817 network +not checked: ", shown, re.MULTILINE)
    assert shown.splitlines()[-1] == "next: fix the problems, then: smdp-launch preflight"
    assert all(len(line) <= columns for line in shown.splitlines())
