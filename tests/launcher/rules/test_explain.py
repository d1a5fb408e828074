"""The pages of the codes: each wrong example gives its code, and ``explain`` shows the pages, also from a wheel."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smdp_launch.checking.rules import every_rule
from smdp_launch.diagnostics import Severity
from smdp_launch.errors import ExitCode
from smdp_launch.rules.base.pages import codes, page, title
from tests.conftest import LAUNCHER, ROOT, Command, clean_environment
from tests.support.job_files.examples import PAGES, block, diagnostics_of, script
from tests.support.services.cloud import Cloud
from tests.support.services.faulty_service import cloud_with_data

#: Codes of problems that are not in a line of the job file.
ELSEWHERE = {"SMDP101": "job.yaml", "SMDP207": "--set", "SMDP208": "smdp-defaults.yaml", "SMDP410": "src/.smdpignore"}
ELSEWHERE |= dict.fromkeys(("SMDP430", "SMDP439", "SMDP452", "SMDP456", "SMDP457", "SMDP515"), "src/train.py")
ELSEWHERE |= {f"SMDP{number}": "src/train.py" for number in range(440, 449)} | dict.fromkeys(
    ("SMDP449", "SMDP458"), "src/requirements.txt"
)
ELSEWHERE |= dict.fromkeys(("SMDP465", "SMDP466", "SMDP468", "SMDP518"), "src/train.py")
ELSEWHERE |= dict.fromkeys(("SMDP343", "SMDP462", "SMDP464", "SMDP827", "SMDP828"), "src/inference.py")
ELSEWHERE |= dict.fromkeys(("SMDP825", "SMDP826"), "src/train.py")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("account") / "state") as made:
        yield made


@pytest.fixture
def account(request: pytest.FixtureRequest) -> Callable[[], Cloud]:
    """One account for all examples, started by the first example that needs it."""
    return lambda: request.getfixturevalue("cloud")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_wrong_example_gives_only_its_code(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: Callable[[], Cloud]
) -> None:
    diagnostics = diagnostics_of(tmp_path, block(path, "Wrong"), monkeypatch, account, python=script(path, "Wrong"))
    assert [one.code for one in diagnostics] == [path.stem], diagnostics
    (one,) = diagnostics
    assert one.help
    assert one.span is not None
    assert one.span.file == ELSEWHERE.get(path.stem, one.span.file if path.stem == "SMDP209" else "job.yaml")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_right_example_gives_no_diagnostic(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: Callable[[], Cloud]
) -> None:
    assert diagnostics_of(tmp_path, block(path, "Right"), monkeypatch, account, python=script(path, "Right")) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page_starts_with_code_and_reason(path: Path) -> None:
    first, empty, *rest = path.read_text().splitlines()
    assert first.startswith(f"# {path.stem}: ")
    assert empty == ""
    assert len(" ".join(rest[: rest.index("## Wrong")])) > 60
    assert max(map(len, rest)) <= 130


def test_every_rule_has_a_page() -> None:
    assert {one.code for one in every_rule()} <= set(codes())


def test_index_matches_the_pages() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "error_index.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")


def test_explain_accepts_code_in_any_case(smdp_launch: Command) -> None:
    ran = smdp_launch("explain", "SMDP301")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, page("SMDP301"), "next: smdp-launch validate\n")
    assert smdp_launch("explain", "smdp301").stdout == smdp_launch("explain", "301").stdout == ran.stdout


def test_explain_json_has_page(smdp_launch: Command) -> None:
    document = json.loads(smdp_launch("explain", "SMDP301", "--json").stdout)
    assert document == {"explain": 1, "code": "SMDP301", "title": title("SMDP301"), "page": page("SMDP301")}


def test_explain_renders_page_in_terminal(job_folder: Path) -> None:
    ours, theirs = pty.openpty()
    ran = subprocess.Popen(
        [LAUNCHER, "explain", "SMDP301"],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        cwd=job_folder,
        env=clean_environment(TERM="xterm-256color", COLUMNS="80"),
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # Linux ends a terminal's output so
            break
    os.close(ours)
    assert ran.wait(timeout=60) == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "instance type not supported" in text
    assert "```" not in text


def test_explain_without_code_lists_all_codes(smdp_launch: Command) -> None:
    lines = smdp_launch("explain").stdout.splitlines()
    assert lines == [f"{one}  {title(one)}" for one in codes()]
    listed = json.loads(smdp_launch("explain", "--json").stdout)["codes"]
    assert [one["code"] for one in listed] == list(codes())


@pytest.mark.parametrize(("wrong", "hint"), [("SMPD301", "did you mean SMDP301?"), ("E501", "lists all codes")])
def test_explain_unknown_code_is_usage_error(smdp_launch: Command, wrong: str, hint: str) -> None:
    ran = smdp_launch("explain", wrong)
    assert ran.returncode == ExitCode.USAGE
    assert hint in ran.stderr


def test_diagnostics_end_with_explain_command(smdp_launch: Command) -> None:
    ran = smdp_launch("validate", "nowhere.yaml")
    assert ran.stderr.splitlines()[-1] == "1 error; for details: smdp-launch explain SMDP101"


def test_wheel_contains_the_pages(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
    program = (
        "from smdp_launch.rules.base.pages import codes, folder, page; print(folder()); print(page(codes()[0]), end='')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=clean_environment(PYTHONPATH=str(installed)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"{installed / 'smdp_launch' / '_pages'}\n{page('SMDP101')}"
    shipped = {one.stem for one in (installed / "smdp_launch" / "_pages").glob("*.md")}
    assert shipped == set(codes())


def test_only_pages_of_warnings_mention_silence() -> None:
    warnings = {one.code for one in every_rule() if one.severity is Severity.WARNING}
    mentioned = {one for one in codes() if f"silence: [{one}]" in page(one)}
    assert mentioned <= warnings
