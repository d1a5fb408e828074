"""The library from Python: its names, its guide, its docstrings, and what importing it costs."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import smdp_launch
from smdp_launch import api
from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "python-api.md"


@pytest.fixture(autouse=True)
def in_the_jobs_folder(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_folder)


def failures(test: doctest.DocTest) -> str:
    told: list[str] = []
    doctest.DocTestRunner().run(test, out=told.append, clear_globs=False)
    return "".join(told)


def test_the_guides_code_gives_what_it_says() -> None:
    code = "".join(re.findall(r"^```python\n(>>> .*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(code, {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) > 10
    assert failures(test) == ""


@pytest.mark.parametrize("name", ["validate", "load", "plan", "launch"])
def test_the_docstrings_give_what_they_say(name: str) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(api, name), name, api, globs=dict(vars(api)))
    assert test.examples
    assert failures(test) == ""


def test_the_guide_has_every_name_and_no_other() -> None:
    names = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(smdp_launch.__all__)


def test_every_name_is_there() -> None:
    values = {name: getattr(smdp_launch, name) for name in smdp_launch.__all__}
    assert [name for name, value in values.items() if value is None or isinstance(value, ModuleType)] == []
    with pytest.raises(AttributeError, match="lauch"):
        smdp_launch.lauch  # noqa: B018 - looking is what is tested


def test_importing_it_loads_none_of_its_libraries() -> None:
    program = "import sys, smdp_launch; print(*{name.partition('.')[0] for name in sys.modules})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"pydantic", "ruamel", "rich", "click", "botocore", "pathspec", "platformdirs"}
    assert heavy & set(ran.stdout.split()) == set()
