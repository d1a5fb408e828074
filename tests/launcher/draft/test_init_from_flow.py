"""`init --from`: a value is that of a line which surely ran before the call; any other line is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smdp_launch.draft.sdk_call.find import Found, find_call
from smdp_launch.draft.sdk_call.values import LOST, Unknown
from tests.support.jobs.init import drafted, notes

MADE = 'PyTorch(entry_point="train.py", instance_count=n, hyperparameters=hp)'


def found(folder: Path, text: str) -> Found:
    path = folder / "x.py"
    path.write_text(text)
    return find_call(path)


def read(folder: Path, text: str, name: str) -> tuple[Any, list[str]]:
    """The argument of the call, with `?` for each unknown value, and the lines that are reported."""
    call = found(folder, text)
    value = call.made.named[name]
    if isinstance(value, dict):
        return {key: "?" if isinstance(one, Unknown) else one for key, one in value.items()}, list(call.lost)
    return "?" if isinstance(value, Unknown) else value, list(call.lost)


def test_smoke_test_below_an_if_is_not_taken_for_the_job(tmp_path: Path) -> None:
    text = f"""import sys
hp, n = {{"lr": 0.1, "epochs": 90}}, 8
if "--smoke" in sys.argv:
    hp["epochs"] = 1
    n = 1
est = {MADE}
est.fit()
"""
    ran, job = drafted(tmp_path, "x.py", text)
    assert job["script"]["hyperparameters"] == {"lr": 0.1, "epochs": "your-epochs"}
    assert "instance_count" not in job.get("compute", {})
    assert "not taken over: `n` in line 5, `hp['epochs']` in line 4" in notes(ran)


@pytest.mark.parametrize(
    ("lines", "value", "lost"),
    [
        ("n = 8\nif x: n = 1", "?", [2]),
        ("if x: n = 1\nn = 8", 8, []),
        ("if x: n = 8\nelse: n = 1", "?", [1, 2]),
        ("if x: n = 8", 8, []),  # without this line, the call is an error
        ("n = 8\nif x:\n  n = 1\n  use(CALL)", 1, []),
        ("n = 8\nif x:\n  n = 1\nelse:\n  use(CALL)", 8, []),
        ("for x in y:\n  if x: n = 1\n  else: use(CALL)\n  n = 2", "?", [2, 4]),
        ("n = 8\nfor x in y: n = x", "?", [2]),
        ("n = 8\nfor x in y:\n  use(CALL)\n  n *= 2", "?", [4]),
        ("for x in y:\n  n = 8\n  use(CALL)\n  n *= 2", 8, []),
        ("n = 8\nwhile x: n = 1", "?", [2]),
        ("try: n = 8\nexcept KeyError: n = 1", "?", [1, 2]),
        ("n = 1\ntry: n = 8\nexcept KeyError: pass", "?", [2]),
        ("n = 1\ntry: f()\nexcept KeyError: pass\nelse: n = 8", "?", [4]),
        ("n = 1\ntry: n = 8\nexcept KeyError: pass\nelse: use(CALL)", 8, []),
        ("n = 1\ntry:\n  n = 8\n  use(CALL)\nexcept KeyError: pass", 8, []),
        ("n = 1\ntry: n = 8\nfinally: pass", 8, []),
        ("with x: n = 8", 8, []),
        ("n = 1\nwith suppress(KeyError): n = 8", "?", [2]),
        ("n = 1\nwith x:\n  n = 8\n  use(CALL)", 8, []),
        ("with x as n: pass", "?", []),
        ("n = 1\n[use(CALL) for n in x]", "?", []),
        ("n = 8\nf = lambda n: use(CALL)", "?", []),
        ("n = 8\n[n for n in x]", 8, []),
        ("n = 1\nif (n := 8): pass", 8, []),
        ("n = 1\nn, m = x", "?", []),
        ("n = 1\nmatch x:\n  case 1: n = 8", "?", [3]),
        ("n = 8\nclass A:\n  n = 1", 8, []),
        ("n = 4\nn += 2\nn *= 2", 12, []),
        ("n = 4\nif x: n += 2", "?", [2]),
        ("n: int\nn = 8", 8, []),
        ("from settings import n\nif x: n = 1", "?", [2]),
        ("from settings import *\nif x: n = 1", "?", [2]),
        ("from settings import *\nn = 8", 8, []),
        ("n = 8\nfrom settings import *", 8, []),
    ],
)
def test_name_has_the_value_that_it_surely_has(tmp_path: Path, lines: str, value: Any, lost: list[int]) -> None:
    text = lines.replace("CALL", MADE) if "CALL" in lines else f"{lines}\n{MADE}"
    assert read(tmp_path, f"{text}\n", "instance_count") == (value, [f"`n` in line {one}" for one in lost])


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("debug = False\nn = 8\nif debug: n = 1", 8),
        ("debug = False\nif not debug: n = 8\nelse: n = 1", 8),
        ("debug = True\nif debug: n = 1\nelse: n = 8", 1),
        ("n = 8\nif False: n = 1", 8),
        ("n = 1\nif True: n = 8", 8),
        ("n = 8\nwhile 0: n = 1", 8),
        ("small = ''\nn = 1 if small else 8", 8),
        ("n = 1\nif __name__ == '__main__': n = 8", 8),
        ("a = 1\nfor x in y:\n  if a: a = False\nn = 8\nif a: n = 1", "?"),
    ],
)
def test_condition_that_the_file_knows_selects_the_branch(tmp_path: Path, lines: str, value: Any) -> None:
    assert read(tmp_path, f"{lines}\n{MADE}\n", "instance_count")[0] == value


@pytest.mark.parametrize(
    ("text", "value", "lost"),
    [
        ("n = 8\ndef go(): MADE\nn = 1\ngo()", 1, []),
        ("n = 8\ndef go(): MADE\ngo()\nn = 1", 8, []),
        ("n = 8\ndef go(): MADE\ngo()\nn = 1\ngo()", "?", [4]),
        ("def go(): MADE\nif x: n = 8\ngo()", 8, []),
        ("n = 1\ndef go(): MADE\nif x:\n  n = 8\n  go()", 8, []),
        ("n = 8\ndef other(): n = 1\nother()\nMADE", 8, []),
        ("n = 8\ndef other():\n  global n\n  n = 1\nother()\nMADE", 1, []),
        ("n = 8\ndef other():\n  global n\n  n = 1\nMADE\nother()", 8, []),
        ("n = 8\ndef other():\n  global n\n  n = 1\nif x: other()\nMADE", "?", [4]),
        ("n = 8\ndef other():\n  global n\n  if x: n = 1\nother()\nMADE", "?", [4]),
        ("n = 8\ndef other():\n  global n\n  if x: return\n  n = 1\nother()\nMADE", "?", [5]),
        ("n = 8\ndef other():\n  global n\n  with x:\n    if x: return\n    n = 1\nother()\nMADE", "?", [6]),
        ("n = 8\ndef other():\n  global n\n  if False: return\n  n = 1\nother()\nMADE", 1, []),
        ("def go():\n  n = 1\n  if x: return\n  n = 8\n  MADE\ngo()", 8, []),
        ("n = 8\ndef go(): MADE\nn = 1", "?", [3]),  # no call of go is known
        ("def go(n=4): MADE\nThread(target=go, args=(8,)).start()", "?", []),
        ("def go(n=4): MADE\ngo(8)\nlist(map(go, [9]))", "?", []),
        ("@click.option('--n')\ndef go(n=4): MADE\ngo()", "?", []),
        ("@flow\ndef go(n=4): MADE\ngo(n=8)", 8, []),
        ("class Job:\n  def run(self, n=4): MADE\n  def all(self): map(self.run, [9])\nJob().all()", "?", []),
        ("class Job:\n  def __init__(self, n=4): MADE\ndef show(job: Job) -> Job: pass\nJob()", 4, []),
        ("class Job:\n  def __init__(self, n=4): MADE\nJob(n=8)", 8, []),
        ("class Job:\n  def run(self, n=4): MADE\nsubprocess.run('ls', n=8)", "?", []),
        ("def go():\n  def inner(): MADE\n  inner()\nn = 8\ngo()", 8, []),
    ],
)
def test_functions_run_where_they_are_called(tmp_path: Path, text: str, value: Any, lost: list[int]) -> None:
    got = read(tmp_path, f"{text.replace('MADE', MADE)}\n", "instance_count")
    assert got == (value, [f"`n` in line {one}" for one in lost])


@pytest.mark.parametrize(
    ("lines", "value", "lost"),
    [
        ("hp['a'] = 2\nhp['b'] *= 3", {"a": 2, "b": 6}, []),
        ("if x: hp['a'] = 2", {"a": "?", "b": 2}, ["hp['a']"]),
        ("if x: hp.update(a=2)", {"a": "?", "b": 2}, ["hp.update"]),
        ("if x: hp.update({'a': 2, 'c': 3})", {"a": "?", "b": 2, "c": "?"}, ["hp.update"]),
        ("if x: del hp['a']", {"a": "?", "b": 2}, ["hp['a']"]),
        ("if x: hp = {'a': 2}", "?", ["hp"]),
        ("for x in y: hp['a'] = x", {"a": "?", "b": 2}, ["hp['a']"]),
        ("del hp['a']\nhp.pop('b')\nhp.pop('c', 1)", {}, []),
        ("hp.setdefault('a', 5)\nhp.setdefault('c', 5)", {"a": 1, "b": 2, "c": 5}, []),
        ("hp |= {'c': 3}", {"a": 1, "b": 2, "c": 3}, []),
        ("hp = hp | {'c': 3}", {"a": 1, "b": 2, "c": 3}, []),
        ("hp = {**hp, 'c': 3}", {"a": 1, "b": 2, "c": 3}, []),
        ("hp = dict(hp, c=3)", {"a": 1, "b": 2, "c": 3}, []),
        ("hp = dict(hp)", {"a": 1, "b": 2}, []),
        ("hp = dict(load(), c=3)", {f"{LOST}load()": "?", "c": 3}, []),
        ("hp = hp | load()", {"a": "?", "b": "?", f"{LOST}load()": "?"}, []),
        ("hp = {**hp, **load(), 'b': 3}", {"a": "?", "b": 3, f"{LOST}load()": "?"}, []),
        ("hp = dict(hp, c=3, **load())", {"a": "?", "b": "?", "c": 3, f"{LOST}load()": "?"}, []),
        ("hp.update([('a', 2)])", {"a": "?", "b": "?", f"{LOST}[('a', 2)]": "?"}, ["hp.update"]),
        ("hp[name] = 3", {"a": "?", "b": "?", f"{LOST}hp[name]": "?"}, []),
        ("other = hp\nother['a'] = 3", {"a": "?", "b": 2}, ["other['a']"]),
        ("other = hp\nlast = other\nlast.update(a=3)", {"a": "?", "b": 2}, ["last.update"]),
        ("other = hp\nother |= {'a': 3}", {"a": "?", "b": "?", f"{LOST}other": "?"}, ["other"]),
        ("base = hp\nhp = base\nbase['a'] = 3", {"a": "?", "b": 2}, ["base['a']"]),
        ("other = dict(hp)\nother['a'] = 3", {"a": 1, "b": 2}, []),
        ("def other(hp): hp['a'] = 3\nother({})", {"a": 1, "b": 2}, []),
        ("hp['a']['b'] = 1", {"a": "?", "b": 2}, []),
        ("hp.clear()", {"a": "?", "b": "?", f"{LOST}hp.clear": "?"}, ["hp.clear"]),
        ("def tweak(h): h['a'] = 2\ntweak(hp)", {"a": "?", "b": 2}, []),
        (
            "def tweak(h): h.update(load())\nif x: tweak(h=hp)",
            {"a": "?", "b": "?", f"{LOST}tweak": "?"},
            ["tweak"],
        ),
        ("def show(h): print(h['a'])\nshow(hp)", {"a": 1, "b": 2}, []),
    ],
)
def test_entries_of_a_mapping_are_those_that_it_surely_has(
    tmp_path: Path, lines: str, value: Any, lost: list[str]
) -> None:
    got, reported = read(tmp_path, f"n = 1\nhp = {{'a': 1, 'b': 2}}\n{lines}\n{MADE}\n", "hyperparameters")
    assert (got, [one.rpartition(" in ")[0] for one in reported]) == (value, [f"`{one}`" for one in lost])


@pytest.mark.parametrize(
    ("lines", "value", "lost"),
    [
        ("ns.append(5)\nns += [6]", 8, []),
        ("ns[0] = 4", "?", ["ns[0]"]),
        ("ns[1] = 4", "?", ["ns[1]"]),
        ("ns.insert(0, 4)", "?", ["ns.insert"]),
        ("ns.reverse()", "?", ["ns.reverse"]),
        ("del ns[0]", "?", ["ns[0]"]),
        ("ns.pop(0)", "?", ["ns.pop"]),
        ("other = ns\nother.sort()", "?", ["other.sort"]),
        ("def add(x): x.append(5)\nadd(ns)", 8, []),
    ],
)
def test_element_of_a_list_is_known_until_the_list_changes(
    tmp_path: Path, lines: str, value: Any, lost: list[str]
) -> None:
    text = f"hp, ns = {{}}, [8, 2]\n{lines}\n{MADE.replace('=n,', '=ns[0],')}\n"
    got, reported = read(tmp_path, text, "instance_count")
    assert (got, [one.rpartition(" in ")[0] for one in reported]) == (value, [f"`{one}`" for one in lost])


def test_lists_and_inputs_that_may_change_are_reported(tmp_path: Path) -> None:
    text = """tags, data = [{"Key": "a", "Value": "b"}], TrainingInput("s3://data/a")
tags.append(tag)
if x: data.config = y
PyTorch(entry_point="train.py", tags=tags).fit({"a": data})
"""
    ran, job = drafted(tmp_path, "x.py", text)
    assert "tags may lack entries: `tags.append` cannot be read from the file" in notes(ran)
    assert "not taken over: TrainingInput.config in line 3, `data.config` in line 3" in notes(ran)
    assert job["tags"] == {"a": "b"}


@pytest.mark.parametrize(
    ("lines", "value", "lost"),
    [
        ("hp['b'] = 2", {"a": 1, "b": 2}, []),
        ("hp.update(b=2)", {"a": 1, "b": 2}, []),
        ("if x: hp['b'] = 2", {"a": 1}, ["`hp['b']` in line 4"]),
        ("hp.pop('a')", {"a": 1}, ["`hp.pop` in line 4"]),
        ("other = hp\nother['a'] = 2", {"a": 1}, ["`other['a']` in line 5"]),
        ("hp = {}\nhp['b'] = 2", {"a": 1}, []),
        ("def other(hp): hp['b'] = 2", {"a": 1}, []),
        ("est.fit()\nhp['b'] = 2", {"a": 1}, []),
    ],
)
def test_mapping_changes_between_the_call_and_its_start(
    tmp_path: Path, lines: str, value: Any, lost: list[str]
) -> None:
    # PyTorch keeps the mapping itself, and reads it at the start.
    text = f"n = 1\nhp = {{'a': 1}}\nest = {MADE}\n{lines}\nest.fit()\n"
    assert read(tmp_path, text, "hyperparameters") == (value, lost)
    copied = found(tmp_path, text.replace("PyTorch", "Estimator").replace("entry_point", "image_uri"))
    assert (copied.made.named["hyperparameters"], copied.lost) == ({"a": 1}, ())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from sagemaker.estimator import Estimator", "Estimator"),
        ("import sagemaker", "sagemaker.estimator.Estimator"),
        ("import sagemaker.estimator as sdk", "sdk.Estimator"),
    ],
)
def test_imported_class_needs_no_named_argument(tmp_path: Path, text: str, name: str) -> None:
    made = found(tmp_path, f"{text}\n{name}('image', 'role', 2, 'ml.p4d.24xlarge', max_run=60)\n").made.named
    assert [made[one] for one in ("image_uri", "instance_count", "instance_type")] == ["image", 2, "ml.p4d.24xlarge"]


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("region = 'us-west-2'", "us-west-2"),
        ("region = 'us-west-2'\nboto3.Session(region_name=region)", "us-west-2"),
        ("if prod: region = 'us-west-2'\nelse: region = 'us-east-1'", None),
        ("region = boto3.Session().region_name\nif not region: region = 'us-west-2'", None),
    ],
)
def test_region_is_known_if_the_file_has_only_one(tmp_path: Path, text: str, region: str | None) -> None:
    assert found(tmp_path, f"{text}\n{MADE}\n").region == region
