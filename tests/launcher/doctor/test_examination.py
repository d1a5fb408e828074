"""The results of `doctor`: their order, what a report omits, the AWS configuration and the clock."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from smdp_launch.doctor import aws
from smdp_launch.doctor.examination import Examination
from smdp_launch.doctor.frameworks import Step, probe
from smdp_launch.doctor.limits import memory_limit
from smdp_launch.doctor.results import CheckResult, in_order
from smdp_launch.errors import ExitCode
from tests.conftest import Command, clean_environment
from tests.support.json_documents import the_document

IDENTITY = """\
<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Arn>arn:aws:iam::123456789012:user/ann</Arn><UserId>A</UserId><Account>123456789012</Account>
</GetCallerIdentityResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></GetCallerIdentityResponse>
"""


def test_errors_come_first_and_causes_before_consequences() -> None:
    found = [
        CheckResult("python", "ok", ""),
        CheckResult("namespaces", "warning", ""),
        CheckResult("torch", "error", ""),
        CheckResult("torch adapter", "not checked", ""),
        CheckResult("ports", "error", ""),
    ]
    assert [one.name for one in in_order(found)] == ["torch", "ports", "namespaces", "torch adapter", "python"]


def test_report_omits_names_paths_of_home_and_accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/ann.example")
    monkeypatch.setattr(getpass, "getuser", lambda: "ann.example")
    monkeypatch.setattr("socket.gethostname", lambda: "ann-laptop")
    monkeypatch.chdir(tmp_path)
    result = CheckResult(
        "torch",
        "error",
        "libfoo.so in /home/ann.example/secret project/x, arn:aws:iam::123456789012:user/ann (account 123456789012)",
        f"user ann.example on ann-laptop in {tmp_path}",
        "/home/ann.example/venvs/secret/bin/python -m pip install torch==2.13.0",
    )
    (hidden,) = Examination((result,)).without_private_data().results
    assert hidden.command == "~/.../python -m pip install torch==2.13.0"
    assert hidden.fix == "user *** on *** in ~"
    assert hidden.found == "libfoo.so in ~/.../secret project/x, arn:*** (account ***)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AWS_ENDPOINT_URL is https://ann:hunter2@proxy.example:8443/x?token=abc", "AWS_ENDPOINT_URL is https://***"),
        (
            'endpoint URL: "https://sts.us-east-1.amazonaws.com/"',
            'endpoint URL: "https://sts.us-east-1.amazonaws.com/"',
        ),
        ("there is no profile AKIAIOSFODNN7EXAMPLE", "there is no profile ********************"),
        ("there is no profile prod_123456789012", "there is no profile prod_***"),
        ("/home/ann.example.org/x, /home/ann/x, /home/ann.", "/home/ann.example.org/x, ~/.../x, ~."),
    ],
)
def test_report_omits_secrets_and_accounts_wherever_they_are(
    text: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setattr(getpass, "getuser", lambda: "bob")
    (hidden,) = Examination((CheckResult("aws", "warning", text),)).without_private_data().results
    assert hidden.found == shown


KEYS = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}


def test_password_in_an_address_is_not_shown(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://ann:hunter2@127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "B")
    shown = [one.found for one in aws.of(call=True)]
    assert len(shown) == 3 and not [one for one in shown if "hunter2" in one]


def test_address_that_is_none_is_an_error_of_the_check(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "nonsense")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "B")
    (identity,) = aws.account()
    assert (identity.verdict, identity.found) == ("error", "AWS cannot be asked: Invalid endpoint: nonsense")


def test_json_output_matches_its_schema_and_has_no_home(smdp_launch: Command, tmp_path: Path) -> None:
    """In the environment of the tests, in a folder below the home folder."""
    variables = {"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "very-secret"}
    ran = smdp_launch("doctor", "--json", env=clean_environment(**variables))
    document = the_document(ran, "doctor")
    assert ran.returncode == (ExitCode.OK if document["passed"] else ExitCode.ENVIRONMENT)
    for private in (str(tmp_path), "AKIAEXAMPLE", "very-secret"):
        assert private not in ran.stdout + ran.stderr
    found = {one["check"]: one for one in document["results"]}
    assert {"python", "packages", "open files", "state folder", "namespaces", "memory", "compiler"} <= found.keys()
    assert "credentials: the variable AWS_ACCESS_KEY_ID" in found["aws"]["found"]
    order = [one["verdict"] for one in document["results"]]
    assert order == sorted(order, key=["error", "warning", "not checked", "ok"].index)


@pytest.mark.runs
def test_report_has_one_line_for_each_check(smdp_launch: Command) -> None:
    ran = smdp_launch("doctor", "--report")
    first, *lines = ran.stdout.splitlines()
    assert first.startswith("smdp-launch doctor --report (")
    assert all(": " in line for line in lines)
    assert any(line.startswith("system: ok: Linux ") for line in lines)


@pytest.mark.parametrize(
    ("environ", "section", "source", "missing"),
    [
        (KEYS, {}, "the variable AWS_ACCESS_KEY_ID", None),
        ({**KEYS, "AWS_PROFILE": "b"}, {"aws_access_key_id": "B"}, "the variable AWS_ACCESS_KEY_ID", None),
        ({"AWS_ACCESS_KEY_ID": "A"}, {}, "the variable AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ({}, {"aws_access_key_id": "B", "aws_secret_access_key": "s"}, "keys in the profile", None),
        ({}, {"aws_access_key_id": "B"}, "keys in the profile", "aws_secret_access_key"),
        ({}, {"role_arn": "r", "source_profile": "s"}, "a role that the profile assumes", None),
        ({}, {"sso_session": "s"}, "IAM Identity Center (`aws sso login`)", None),
        ({}, {"login_session": "arn"}, "a session of the AWS console (`aws login`)", None),
        ({}, {"credential_process": "p"}, "a program that the profile names", None),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "f"}, {}, "a web identity token", None),
        ({}, {"region": "us-east-1"}, None, None),
    ],
)
def test_source_of_credentials_is_found_without_a_call(
    environ: dict[str, str], section: dict[str, str], source: str | None, missing: str | None
) -> None:
    assert aws.credentials_source(environ, section) == (source, missing)


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An AWS configuration without settings; its file."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return file


def test_unknown_profile_is_a_warning_with_the_known_ones(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_aws.write_text("[profile work]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_PROFILE", "wrok")
    (found,) = aws.configuration({"AWS_PROFILE": "wrok"})
    assert (found.verdict, found.found) == ("warning", "there is no profile wrok")
    assert found.fix == "use one of these profiles: work"


def test_unknown_profile_without_any_profile_has_a_readable_fix(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    (found,) = aws.configuration({"AWS_PROFILE": "work"})
    assert (found.fix, found.command) == ("no file has a profile; remove the variable", "unset AWS_PROFILE")


def test_key_id_without_its_secret_is_a_warning(no_aws: Path) -> None:
    (found,) = aws.configuration({"AWS_ACCESS_KEY_ID": "A"})
    assert (found.verdict, found.fix) == ("warning", "set AWS_SECRET_ACCESS_KEY too, or remove the key ID")
    assert "the variable AWS_ACCESS_KEY_ID without AWS_SECRET_ACCESS_KEY" in found.found


def test_every_address_of_the_configuration_is_a_warning(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = "endpoint_url = http://u:p@127.0.0.1:1\nservices = own\n"
    no_aws.write_text(f"[default]\n{settings}[services own]\ns3 =\n  endpoint_url = http://127.0.0.1:2\n")
    environ = {**KEYS, "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:3", "AWS_ENDPOINT_URL_S3": ""}
    _, found = aws.configuration(environ)
    assert (found.name, found.verdict, found.command) == ("aws endpoint", "warning", "unset AWS_ENDPOINT_URL_STS")
    assert found.found.startswith("AWS_ENDPOINT_URL_STS is http://127.0.0.1:3, endpoint_url of the profile is ")
    assert "u:p" not in found.found and "endpoint_url of s3 in the profile is http://127.0.0.1:2" in found.found
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert [one.name for one in aws.configuration(environ)] == ["aws"]


def test_broken_configuration_file_is_a_warning(no_aws: Path) -> None:
    no_aws.write_text("[profile work\n")
    (found,) = aws.configuration({})
    assert found.verdict == "warning"
    assert str(no_aws) in found.found


def test_profile_region_and_source_are_shown(no_aws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_aws.write_text("[profile work]\nregion = eu-west-1\naws_access_key_id = AKIA1\naws_secret_access_key = s3cret\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    (found,) = aws.configuration({"AWS_PROFILE": "work"})
    assert found.verdict == "ok"
    assert found.found == "profile work, region eu-west-1, credentials: keys in the profile"


@contextmanager
def answering(skew: float, status: int = 200, body: str = IDENTITY) -> Iterator[str]:
    """The URL of a service whose clock is ``skew`` seconds behind."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response_only(status)
            self.send_header("Date", format_datetime(datetime.now(timezone.utc) - timedelta(seconds=skew), usegmt=True))
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("skew", "verdict"), [(0, "ok"), (100, "warning"), (-100, "warning"), (4000, "error")])
def test_clock_is_compared_with_the_answer_s_date(
    no_aws: Path, monkeypatch: pytest.MonkeyPatch, skew: float, verdict: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "B")
    with answering(skew) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        identity, clock = aws.account()
    assert identity == CheckResult("aws identity", "ok", "arn:aws:iam::123456789012:user/ann (account 123456789012)")
    assert clock.verdict == verdict
    assert ("behind" if skew < 0 else "ahead of") in clock.found or skew == 0


def test_refused_credentials_are_an_error_and_the_clock_is_still_compared(
    no_aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "B")
    body = "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>m</Message></Error></ErrorResponse>"
    with answering(4000, 403, body) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        identity, clock = aws.account()
    assert (identity.verdict, identity.found) == ("error", "AWS refuses the credentials: SignatureDoesNotMatch")
    assert (identity.fix, clock.verdict) == ("set the clock", "error")


def test_import_that_hangs_ends_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    found = probe(["torch"], timeout=2.0)
    assert found == {"torch": Step("torch", "it did not finish within 2 s", {})}


def test_output_of_a_library_does_not_disturb_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(
        "import os\nfrom types import SimpleNamespace\n__version__, version = '2.99', SimpleNamespace(cuda=None)\n"
        "os.write(1, b'banner\\n')\nprint('hello')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert probe(["torch"])["torch"].values == {"version": "2.99", "cuda": None, "hip": None, "gpus": 0}


def test_memory_limit_is_that_of_the_machine_or_less() -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    machine = int(next(line for line in lines if line.startswith("MemTotal:")).split()[1]) * 1024
    limit = memory_limit()
    assert limit is not None
    assert 0 < limit <= machine


def test_result_is_json() -> None:
    text = json.dumps(CheckResult("torch", "error", "broken", "install it", "pip install torch").to_json())
    assert json.loads(text)["command"] == "pip install torch"


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """A control group with 1 GB of memory, and one with half a processor."""
    folders = [Path("/sys/fs/cgroup", name, f"smdp-test-{os.getpid()}") for name in ("memory", "cpu")]
    try:
        for one in folders:
            one.mkdir()
        (folders[0] / "memory.limit_in_bytes").write_text("1000000000")
        (folders[1] / "cpu.cfs_quota_us").write_text("50000")
    except OSError as error:
        pytest.skip(f"no control groups of version 1 can be made: {error}")
    try:
        yield folders
    finally:
        for one in folders:
            one.rmdir()


def test_limits_of_control_groups_are_found(groups: list[Path]) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "for one in sys.argv[1:]: Path(one, 'tasks').write_text(str(os.getpid()))\n"
        "from smdp_launch.doctor.limits import memory_limit, processor_quota; print(memory_limit(), processor_quota())"
    )
    ran = subprocess.run([sys.executable, "-c", code, *groups], capture_output=True, text=True, check=True)
    memory, quota = ran.stdout.split()
    assert 999_000_000 < int(memory) <= 1_000_000_000  # whole pages
    assert float(quota) == 0.5
