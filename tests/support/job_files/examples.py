"""The examples of the pages in docs/errors: small job files that a sound job completes.

The sound job is the project's ``smdp-defaults.yaml``, so an example is a job file with its own line numbers. Comment
lines at its start describe the rest:

    # without KEY                  the sound job has no such key; `other hyperparameters`: it has none
    # launch | launch --local      the command, if not `validate`
    # --set KEY=VALUE              a flag
    # variable NAME=VALUE          an environment variable
    # file PATH: TEXT              a file; `of N MB` in place of the text sets its size
    # folder PATH, link PATH to X  an empty folder, a link
    # defaults TEXT                the first line of the defaults
    # no file                      there is no job file
    # preflight                    also check the account, which is a local cloud
    # account LINE                 a line of that account's file
    # credentials wrong            credentials of another account
    # measured N MB/s on N hosts   what an earlier run of the job read
    # alone                        do not add `schema: 1` before it

A block of Python after the YAML is the script, ``src/train.py``. Below ``## Right``, a sentence replaces a block that
equals that below ``## Wrong``: "The script does not change.", or "The job file does not change."
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic, Edit
from smdp_launch.edits import apply_edits
from smdp_launch.jobs.preflight.run import preflight
from smdp_launch.jobs.service.clients import connect_aws
from smdp_launch.localcloud.client.variables import variables
from smdp_launch.planning.prepare import make_plan
from smdp_launch.sizing.need import MeasuredInput
from tests.conftest import JOB, ROOT, write_job
from tests.support.services.cloud import Cloud

#: SMDP9xx are reasons of jobs that ran, SMDP704 to 709 of refusals of `checkpoints`, and SMDP710 needs a running job.
_ELSEWHERE = re.compile(r"SMDP(9|70[4-9]|710)")
PAGES = sorted(page for page in (ROOT / "docs" / "errors").glob("*.md") if not _ELSEWHERE.match(page.name))


def block(page: Path, title: str) -> str:
    """The YAML block below ``## title``."""
    return _blocks(page, title)[0]


def script(page: Path, title: str) -> str | None:
    """The block of Python after that."""
    return _blocks(page, title)[1] or None


def _blocks(page: Path, title: str) -> tuple[str, str]:
    form = (
        rf"^## {title}\n\n(?:```yaml\n(.*?)^```|(The job file does not change\.))$"
        r"(?:\n\n(?:```python\n(.*?)^```|(The script does not change\.))$)?"
    )
    found = re.findall(form, page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{page.name}: one block below ## {title}"
    yaml, same_yaml, python, same_python = found[0]
    if same_yaml or same_python:
        assert title == "Right", f"{page.name}: the example below ## {title} is not complete"
        wrong_yaml, wrong_python = _blocks(page, "Wrong")
        yaml, python = yaml or wrong_yaml, (wrong_python if same_python else python)
    return str(yaml), str(python)


def diagnostics_of(
    folder: Path,
    example: str,
    monkeypatch: pytest.MonkeyPatch,
    account: Callable[[], Cloud],
    edits: Sequence[Edit] = (),
    python: str | None = None,
) -> list[Diagnostic]:
    """The diagnostics of the example, with ``folder`` as the current folder.

    Args:
        account: returns the local cloud that is the account.
        edits: edits of the example's files, applied before the check.
        python: the text of the script.
    """
    write_job(folder, script=python or "print('trained')\n")
    monkeypatch.chdir(folder)
    base: dict[str, Any] = YAML(typ="safe", pure=True).load(JOB)
    directives = re.findall(r"^# (.*)$", example, re.MULTILINE)
    settings: list[str] = []
    environ: dict[str, str] = {}
    for one in directives:
        word, _, rest = one.partition(" ")
        if rest == "other hyperparameters":
            del base["script"]["hyperparameters"]
        elif word == "without":
            del base[rest]
        elif word == "--set":
            settings.append(rest)
        elif word == "variable":
            environ.update([rest.split("=", 1)])
        else:
            _make(word, rest)
    with Path("smdp-defaults.yaml").open("w") as file:
        YAML().dump(base, file)
    if "defaults" in [one.partition(" ")[0] for one in directives]:
        text = next(one.removeprefix("defaults ") for one in directives if one.startswith("defaults "))
        lines = Path("smdp-defaults.yaml").read_text().splitlines()
        Path("smdp-defaults.yaml").write_text("\n".join([text, *lines[1:]]) + "\n")
    written = (
        example if "alone" in directives or re.search("^schema:", example, re.MULTILINE) else f"schema: 1\n{example}"
    )
    Path("job.yaml").unlink() if "no file" in directives else Path("job.yaml").write_text(written)
    for name in {one.file for one in edits}:
        Path(name).write_text(apply_edits(Path(name).read_text(), [one for one in edits if one.file == name]))
    if "preflight" in directives:
        cloud, lines = account(), [one.removeprefix("account ") for one in directives if one.startswith("account ")]
        (cloud.state_dir / "account.yaml").write_text("\n".join(lines))
        use_account(cloud, monkeypatch)
        if "credentials wrong" in directives:
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        return account_diagnostics()
    local = LocalRequest() if "launch --local" in directives else None
    measured = next((_measured(one) for one in directives if one.startswith("measured ")), None)
    job = check_job(Path("job.yaml"), local, settings=settings, environ=environ, measured=measured)
    return [*job.diagnostics, *(job.launch_problems if "launch" in directives else [])]


def _measured(directive: str) -> MeasuredInput:
    rate, hosts = map(float, re.findall(r"\d+", directive))
    return MeasuredInput("earlier-run", False, rate, int(hosts))


def use_account(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make AWS clients of this process use ``cloud``, and none of the user's files."""
    for name, value in variables(cloud.endpoint, os.environ).items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)


def account_diagnostics() -> list[Diagnostic]:
    """The diagnostics of ``job.yaml`` in the current folder, and of the account for it."""
    job = check_job(Path("job.yaml"), environ={})
    job.require()
    plan = make_plan(job, datetime.now(timezone.utc), 0)
    return [*job.diagnostics, *preflight(connect_aws(None), plan).problems]


def _make(word: str, rest: str) -> None:
    size = re.fullmatch(r"(\S+) of (\d+) MB", rest)
    if word == "folder":
        Path(rest).mkdir()
    elif word == "link":
        link, _, target = rest.partition(" to ")
        Path(link).symlink_to(target)
    elif word == "file" and size:
        with Path(size[1]).open("wb") as file:
            file.truncate(int(size[2]) * 1_000_000)
    elif word == "file":
        path, _, text = rest.partition(": ")
        Path(path).write_text(f"{text}\n")
