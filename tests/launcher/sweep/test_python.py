"""A sweep from Python, on the local cloud."""

from __future__ import annotations

import doctest
import re
from functools import partial
from pathlib import Path

import pytest

from smdp_launch import Refused, WaitTimedOut, launch, launch_sweep, plan
from tests.conftest import JOB, ROOT, write_job
from tests.support.waiting import wait_for

GUIDE = ROOT / "docs" / "how-to" / "tuning" / "sweeps.md"
SCRIPT = """\
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--depth", type=int)
arguments = parser.parse_args()
print(f"loss={(arguments.depth - 3) ** 2}", flush=True)
"""
SWEEP = """\
metrics: {loss: 'loss=([0-9.]+)'}
sweep:
  objective: {metric: loss, goal: minimize}
  strategy: grid
  parallel: 2
  ranges: {categorical: {depth: [1, 2, 3]}}
"""


@pytest.fixture(autouse=True)
def in_the_folder_of_a_sweep(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_job(job_folder, JOB + SWEEP, SCRIPT)
    monkeypatch.chdir(job_folder)


@pytest.mark.runs
def test_code_of_the_guide_gives_the_printed_output() -> None:
    code = "".join(re.findall(r"^```python\n(>>> .*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S))
    test = doctest.DocTestParser().get_doctest(code, {}, GUIDE.name, str(GUIDE), 0)
    assert len(test.examples) > 4
    output: list[str] = []
    doctest.DocTestRunner().run(test, out=output.append)
    assert "".join(output) == ""


@pytest.mark.runs
def test_sweep_is_waited_for_and_stopped(job_folder: Path) -> None:
    write_job(job_folder, JOB + SWEEP, f"{SCRIPT}time.sleep(600)\n")
    sweep = launch_sweep(plan("job.yaml", local=True, hosts=1, workers_per_host=1))
    wait_for(lambda: len(sweep.trials()) == 2, "two trials")
    with pytest.raises(WaitTimedOut, match=r"has not ended within 0\.1 s; it continues"):
        sweep.wait(timeout=0.1)
    for one in sweep.trials():
        wait_for(partial(sweep.job(one).logs, grep="loss="), "the first value")
    assert sweep.stop() == "Stopping"
    ended = sweep.wait(timeout=120)
    assert (ended.status, {one.status for one in ended.trials}) == ("Stopped", {"Stopped"})
    assert sweep.stop() == "Stopped"


def test_each_function_refuses_what_the_other_launches(job_folder: Path) -> None:
    with pytest.raises(Refused, match=r"has a sweep, which launch_sweep\(\)"):
        launch(plan("job.yaml", local=True))
    with pytest.raises(Refused, match=r"has no section sweep: launch\(\) runs one job"):
        launch_sweep(plan("job.yaml", settings=["sweep=null"], local=True))
    assert not (job_folder / ".smdp" / "history.jsonl").exists()
