"""The examples of the pages: small parts of job files, each laid over a sound one.

The sound one is the project's ``smdp-defaults.yaml``, so an example is a job file of its own, with its own lines.
Comment lines at its head say what else there is:

    # without KEY                  the sound job has no such key
    # launch | launch --local      what is asked beside `validate`
    # --set KEY=VALUE              a flag
    # variable NAME=VALUE          an environment variable
    # file PATH: TEXT              a file; `of N MB` in place of the text for one of that size
    # folder PATH, link PATH to X  an empty folder, a link
    # defaults TEXT                in place of the first line of the defaults
    # no file                      there is no job file
    # preflight                    the account is asked too: the local cloud that is given
    # account LINE                 of that account's file
    # credentials wrong            that are none of that account's
    # alone                        `schema: 1` is not put before it

A block of Python behind the YAML is the script, ``src/train.py``.
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
from smdp_launch.checking.job import check_job, launch_problems
from smdp_launch.diagnostics import Diagnostic, Edit
from smdp_launch.edits import apply_edits
from smdp_launch.jobs.preflight.run import preflight
from smdp_launch.jobs.service.clients import connect_aws
from smdp_launch.localcloud.client.variables import variables
from smdp_launch.planning.prepare import make_plan
from tests.conftest import JOB, ROOT, write_job
from tests.support.services.cloud import Cloud

PAGES = sorted((ROOT / "docs" / "errors").glob("*.md"))


def block(page: Path, title: str) -> str:
    """The YAML block below ``## title``."""
    return _blocks(page, title)[0]


def script(page: Path, title: str) -> str | None:
    """The block of Python behind that."""
    return _blocks(page, title)[1] or None


def _blocks(page: Path, title: str) -> tuple[str, str]:
    form = rf"^## {title}\n\n```yaml\n(.*?)^```$(?:\n\n```python\n(.*?)^```$)?"
    found = re.findall(form, page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{page.name}: one block below ## {title}"
    yaml, python = found[0]
    return str(yaml), str(python)


def tell(
    folder: Path,
    example: str,
    monkeypatch: pytest.MonkeyPatch,
    account: Callable[[], Cloud],
    edits: Sequence[Edit] = (),
    python: str | None = None,
) -> list[Diagnostic]:
    """What is reported about the example, from within ``folder``; ``account`` gives the cloud that is asked.

    Args:
        edits: of the example's files, made before it is checked.
        python: the text of the script.
    """
    write_job(folder, script=python or "print('trained')\n")
    monkeypatch.chdir(folder)
    base: dict[str, Any] = YAML(typ="safe", pure=True).load(JOB)
    asked = re.findall(r"^# (.*)$", example, re.MULTILINE)
    settings: list[str] = []
    environ: dict[str, str] = {}
    for one in asked:
        word, _, rest = one.partition(" ")
        if word == "without":
            del base[rest]
        elif word == "--set":
            settings.append(rest)
        elif word == "variable":
            environ.update([rest.split("=", 1)])
        else:
            _make(word, rest)
    with Path("smdp-defaults.yaml").open("w") as file:
        YAML().dump(base, file)
    if "defaults" in [one.partition(" ")[0] for one in asked]:
        text = next(one.removeprefix("defaults ") for one in asked if one.startswith("defaults "))
        lines = Path("smdp-defaults.yaml").read_text().splitlines()
        Path("smdp-defaults.yaml").write_text("\n".join([text, *lines[1:]]) + "\n")
    written = example if "alone" in asked or re.search("^schema:", example, re.MULTILINE) else f"schema: 1\n{example}"
    Path("job.yaml").unlink() if "no file" in asked else Path("job.yaml").write_text(written)
    for name in {one.file for one in edits}:
        Path(name).write_text(apply_edits(Path(name).read_text(), [one for one in edits if one.file == name]))
    if "preflight" in asked:
        cloud, told = account(), [one.removeprefix("account ") for one in asked if one.startswith("account ")]
        (cloud.state_dir / "account.yaml").write_text("\n".join(told))
        be_its_caller(cloud, monkeypatch)
        if "credentials wrong" in asked:
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        return account_findings()
    local = LocalRequest() if "launch --local" in asked else None
    job = check_job(Path("job.yaml"), local, settings=settings, environ=environ)
    return [*job.diagnostics, *(launch_problems(job) if "launch" in asked else [])]


def be_its_caller(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS clients of this process talk to ``cloud``, and read none of the person's files."""
    for name, value in variables(cloud.endpoint, os.environ).items():
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)


def account_findings() -> list[Diagnostic]:
    """What is told about ``job.yaml`` in the current folder, and about the account for it."""
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
