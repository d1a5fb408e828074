"""The Python API: names, guide, docstrings and imports."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import smdp_launch
from smdp_launch import api
from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "how-to" / "python.md"


@pytest.fixture(autouse=True)
def in_the_jobs_folder(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)


def failures(test: doctest.DocTest) -> str:
    output: list[str] = []
    doctest.DocTestRunner().run(test, out=output.append, clear_globs=False)
    return "".join(output)


def test_code_of_the_guide_gives_the_printed_output() -> None:
    code = "".join(re.findall(r"^```python\n(>>> .*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(code, {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) > 10
    assert failures(test) == ""


@pytest.mark.parametrize("name", ["validate", "load", "plan", "launch"])
def test_code_of_docstrings_gives_the_printed_output(name: str) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(api, name), name, api, globs=dict(vars(api)))
    assert test.examples
    assert failures(test) == ""


def test_guide_lists_exactly_the_public_names() -> None:
    names = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(smdp_launch.__all__)


def test_public_names_can_be_imported() -> None:
    values = {name: getattr(smdp_launch, name) for name in smdp_launch.__all__}
    assert [name for name, value in values.items() if value is None or isinstance(value, ModuleType)] == []
    with pytest.raises(AttributeError, match="lauch"):
        smdp_launch.lauch  # noqa: B018 - the access is tested


def test_import_loads_no_third_party_library() -> None:
    program = "import sys, smdp_launch; print(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "ruamel", "rich", "click", "botocore", "packaging", "pathspec", "platformdirs"}
    assert heavy & set(ran.stdout.split()) == set()


def test_former_names_of_a_job_still_work() -> None:
    job = smdp_launch.Job("small-1", "us-east-1", None, lambda: nullcontext(SimpleNamespace()))  # type: ignore[arg-type]
    reported: list[object] = []
    job.tell = reported.append
    with job.reached() as clients:
        clients.on_waiting("busy")  # type: ignore[arg-type]
    assert reported == ["busy"]
    assert job.on_waiting == job.tell
    assert smdp_launch.Reached is smdp_launch.ServiceRecovered
