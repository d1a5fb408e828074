"""`init --from`: a change of an estimator is applied if it runs once before the start; any other change is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smdp_launch.draft.sdk_call.find import find_call
from tests.support.jobs.init import drafted, notes

FIRST = 'PyTorch(entry_point="a.py", hyperparameters={"epochs": 2}, instance_count=2)'
OTHER = 'PyTorch(entry_point="b.py", hyperparameters={"epochs": 3}, instance_count=4)'


def read(folder: Path, text: str) -> tuple[dict[str, Any], list[str]]:
    """The arguments of the call in ``text`` after its changes, and the changes that are reported."""
    path = folder / "x.py"
    path.write_text(text)
    found = find_call(path)
    return dict(found.made.named), list(found.lost)


def test_changes_after_both_branches_are_applied(tmp_path: Path) -> None:
    made = FIRST.replace("instance_count=2", "instance_count=2, instance_type='ml.p4d.24xlarge'")
    branches = "".join(f"{head}:\n    est = {made}\n" for head in ("if local", "else"))
    ran, job = drafted(tmp_path, "x.py", f"{branches}est.set_hyperparameters(epochs=90)\nest.max_run = 5\nest.fit()\n")
    assert (job["script"]["hyperparameters"]["epochs"], job["compute"]["max_run"]) == (90, 5)
    assert [one for one in notes(ran) if "not taken over" in one] == []


@pytest.mark.parametrize(
    ("before", "between"),
    [("if local:", "elif big:"), ("try:", "except ImportError:")],
)
def test_changes_in_another_branch_are_not_applied(tmp_path: Path, before: str, between: str) -> None:
    head, end = f"{before}\n    est = {FIRST}\n{between}\n", "est.max_run = 60\nest.fit()\n"
    made, lost = read(tmp_path, f"{head}    est = {OTHER}\n    est.instance_count = 16\n{end}")
    assert (made["instance_count"], made["max_run"], lost) == (2, 60, [])  # that is a change of the other
    made, lost = read(tmp_path, f"{head}    est.instance_count = 16\n{end}")
    assert (made["instance_count"], made["max_run"], lost) == (2, 60, ["`est.instance_count` in line 4"])


@pytest.mark.parametrize(
    "lines",
    [
        "try:\n  f()\nexcept Exception:\n  est.instance_count = 16\n",
        "match kind:\n  case 'big':\n\n    est.instance_count = 16\n",
        "\n\n\nchange = lambda: est.set_hyperparameters(epochs=90)\n",
        "\n\n\nbig and est.set_hyperparameters(epochs=90)\n",
        "\n\n\nest.set_hyperparameters(epochs=90) if big else None\n",
        "\n\n\n[est.set_hyperparameters(epochs=n) for n in numbers]\n",
        "try:\n  f()\n\n  est.instance_count = 16\nexcept Exception: pass\n",
        "\n\nwith suppress(Exception):\n  est.instance_count = 16\n",
        "try:\n  f()\nfinally:\n  for n in numbers: est.instance_count = n\n",
    ],
)
def test_changes_that_may_not_run_are_reported(tmp_path: Path, lines: str) -> None:
    made, lost = read(tmp_path, f"est = {FIRST}\n{lines}est.max_run = 60\nest.fit()\n")
    assert (made["instance_count"], made["hyperparameters"], made["max_run"]) == (2, {"epochs": 2}, 60)
    assert [one.rpartition(" in ")[2] for one in lost] == ["line 5"]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("def set_up(est):\n  est.max_wait = 9\nMADEset_up(est)\nest.fit()\n", "est.max_wait"),
        ("def set_up(n, e):\n  e.max_wait = n\nMADEset_up(9, est)\nest.fit()\n", "e.max_wait"),
        ("def set_up(e):\n  e.max_wait = 9\nMADEset_up(e=est)\nest.fit()\n", "e.max_wait"),
        ("def set_up(*all):\n  all[0].max_wait = 9\nMADEset_up(est)\nest.fit()\n", "all[0].max_wait"),
        ("def deep(x):\n  x.max_wait = 9\ndef set_up(e): deep(e)\nMADEset_up(est)\nest.fit()\n", "x.max_wait"),
        ("MADEhp = est._hyperparameters\nhp['epochs'] = 90\nest.fit()\n", "hp['epochs']"),
        ("MADEhp = est._hyperparameters\nhp.update(epochs=90)\nest.fit()\n", "hp.update"),
        ("MADEe = est\ne.max_wait = 9\nest.fit()\n", "e.max_wait"),
        ("MADEall = [est]\nall.append(x)\nfor e in all: e.max_wait = 9\nest.fit()\n", "e.max_wait"),
        ("MADEfor n, e in {'a': est}.items(): e.max_wait = 9\nest.fit()\n", "e.max_wait"),
        ("MADEall = {'a': est}\nall['a'].max_wait = 9\nest.fit()\n", "all['a'].max_wait"),
    ],
)
def test_changes_in_other_functions_or_through_other_names_are_reported(
    tmp_path: Path, text: str, reported: str
) -> None:
    made, lost = read(tmp_path, text.replace("MADE", f"est = {FIRST}\nest.max_run = 60\n"))
    assert (made["max_run"], made["hyperparameters"], "max_wait" in made) == (60, {"epochs": 2}, False)
    assert [one.rpartition(" in ")[0] for one in lost] == [f"`{reported}`"]


def test_changes_in_other_methods_are_reported(tmp_path: Path) -> None:
    text = f"""class Job:
  def set_up(self):
    self.est.instance_count = 16
  def __init__(self):
    self.est = {FIRST}
    self.est.max_run = 60
  def run(self):
    self.est.max_wait = 90
    self.est.fit()
job = Job()
job.est.volume_size = 5
job.run()
"""
    made, lost = read(tmp_path, text)
    assert (made["instance_count"], made["max_run"], made["max_wait"]) == (2, 60, 90)
    assert lost == ["`self.est.instance_count` in line 3", "`job.est.volume_size` in line 11"]


@pytest.mark.parametrize(
    "text",
    [
        "class Job:\n  def run(self):\n    self.est = MADE\n    self.est.fit()\nOTHER",
        "OTHERclass Job:\n  def run(self):\n    self.est = MADE\n    self.est.fit()\n",
        "def describe(e):\n  print(e.max_run)\nest = MADE\ndescribe(est)\nest.fit()\n",
        "def go(e, config):\n  config.max_run = 5\n  e.fit()\ngo(MADE, config)\n",
        "def make():\n  est = Other()\n  est.max_run = 5\nest = MADE\nest.fit()\n",
        "est = MADE\nest.fit()\nest.max_run = 5\njob = est.latest_training_job\njob.max_run = 5\n",
    ],
    ids=["class below", "class above", "function without changes", "argument", "function", "after the start"],
)
def test_changes_of_other_objects_are_not_reported(tmp_path: Path, text: str) -> None:
    other = "class B:\n  def __init__(self):\n    self.est = Other()\n  def run(self):\n    self.est.max_run = 5\n"
    made, lost = read(tmp_path, text.replace("MADE", FIRST).replace("OTHER", other))
    assert ("max_run" in made, lost) == (False, [])


@pytest.mark.parametrize(
    "text",
    [
        "def main():\n  est = make()\n  est.max_wait = 90\n  est.fit()\n"
        "def make():\n  est = MADE\n  est.max_run = 60\n  return est\nmain()\n",
        "def go():\n  est.max_wait = 90\n  est.fit()\nest = MADE\nest.max_run = 60\ngo()\n",
        "def run(e):\n  e.max_wait = 90\n  e.fit()\nest = MADE\nsubprocess.run('ls')\nest.max_run = 60\nrun(est)\n",
    ],
    ids=["made below", "started above", "method of another module"],
)
def test_functions_run_where_they_are_called(tmp_path: Path, text: str) -> None:
    made, lost = read(tmp_path, text.replace("MADE", FIRST))
    assert (made["max_run"], made["max_wait"], lost) == (60, 90, [])


def test_change_after_a_return_is_applied_only_if_the_start_follows_it(tmp_path: Path) -> None:
    lines = f"def make():\n  est = {FIRST}\n  if big: return est\n  est.max_run = 60\n"
    made, lost = read(tmp_path, f"{lines}  return est\nest = make()\nest.fit()\n")
    assert ("max_run" in made, lost) == (False, ["`est.max_run` in line 4"])
    made, lost = read(tmp_path, f"{lines}  est.fit()\nmake()\n")
    assert (made["max_run"], lost) == (60, [])


def test_change_after_a_call_that_may_start_the_job_is_reported(tmp_path: Path) -> None:
    text = f"class Job:\n  def run(self, e):\n    e.fit()\nest = {FIRST}\nx.run()\nest.max_run = 60\nJob().run(est)\n"
    made, lost = read(tmp_path, text)
    assert ("max_run" in made, lost) == (False, ["`est.max_run` in line 6"])
