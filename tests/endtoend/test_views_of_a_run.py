"""The commands that show a run, on a real local job: their figures are those of the events of the job."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import smdp_launch
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.localcloud.client.connect import private
from smdp_launch.run_metrics.summary import number
from tests.conftest import JOB, command_in, write_job
from tests.support.json_documents import the_document, validator

pytestmark = pytest.mark.runs

SCRIPT = Path(__file__).parent / "scripts" / "slow_reader.py"
STEPS, BATCH, SAMPLE_S, RANKS = 24, 8, 0.03, 2
#: The intervals of 0.4 s are shorter than usual, so that a run of seconds has some of them.
MEASURED = JOB.replace("{epochs: 2}", f"{{steps: {STEPS}}}") + 'environment: {SMDP_TIMING_S: "0.4"}\n'


@dataclass
class Shown:
    """A folder with a completed job.

    Args:
        lines: the events of the job, as `metrics` prints them.
    """

    folder: Path
    job: str
    lines: list[dict[str, Any]]

    def run(self, *arguments: str) -> str:
        ran = command_in(self.folder)(*arguments)
        assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
        return ran.stdout

    def timing(self, rank: int) -> list[dict[str, Any]]:
        return [one for one in self.lines if one["event"] == "timing" and one["rank"] == rank]

    def sum(self, name: str, rank: int) -> float:
        return sum(float(one.get(name, 0)) for one in self.timing(rank))

    @cached_property
    def samples_per_second(self) -> float:
        """Of all ranks, in the steady part of the run. Each view has to show this figure."""
        document = the_document(command_in(self.folder)("compare", self.job, self.job, "--json"), "compare")
        return float(document["a"]["numbers"]["mean_samples_per_second"])


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("views")
    write_job(folder, MEASURED, SCRIPT.read_text(encoding="utf-8"))
    with private(state_folder(folder) / "local"):  # otherwise each command starts one
        ran = command_in(folder)("launch", "--local", "--hosts", "2", "--workers-per-host", "1", timeout=240)
        assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
        lines = [json.loads(line) for line in command_in(folder)("metrics").stdout.splitlines()]
        yield Shown(folder, lines[0]["job"], lines)


class Page(HTMLParser):
    """The texts of a page, the names and values of its rows, and the addresses that it loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: dict[str, str] = {}
        self.loads: list[str] = []
        self._name = self._tag = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        addresses = [value or "" for name, value in attrs if name in ("src", "href")]
        self.loads += [one for one in addresses if not one.startswith("#")]

    def handle_data(self, data: str) -> None:
        if self._tag in ("dt", "th"):
            self._name = data
        elif self._tag in ("dd", "td") and self._name:
            self.rows.setdefault(self._name, data)


def test_report_shows_the_figures_of_the_events_and_the_verdict(shown: Shown) -> None:
    shown.run("report", "--output", "run.html")
    html = (shown.folder / "run.html").read_text(encoding="utf-8")
    page = Page(html)
    assert page.loads == []
    assert page.rows["where"] == "this machine, 2 simulated hosts, 2 workers"
    assert page.rows["steps"] == f"{STEPS} of {STEPS}"
    losses = [one["loss"] for one in shown.lines if one["event"] == "step"]
    assert page.rows["loss"] == f"{losses[-1]:.6g}"
    assert f"{number(shown.samples_per_second)} samples/s" in html
    found = json.loads(shown.run("diagnose", "--json"))
    assert page.rows["verdict"] == found["sentence"]
    assert {"rank 0", "rank 1"} <= set(re.findall(r"rank \d", html))


def test_diagnosis_has_the_waits_of_the_events(shown: Shown) -> None:
    found = the_document(command_in(shown.folder)("diagnose", "--json"), "diagnose")
    assert found["job"] == shown.job
    assert [(one["rank"], one["host"]) for one in found["workers"]] == [(0, "algo-1"), (1, "algo-2")]
    assert sum(found["shares"].values()) == pytest.approx(1)
    for worker in found["workers"]:
        of_step = [one["input_s"] / one["steps"] for one in shown.timing(worker["rank"]) if one["steps"]]
        assert min(of_step) - 1e-9 <= worker["phases"]["input"] <= max(of_step) + 1e-9
        assert worker["phases"]["input"] >= BATCH * SAMPLE_S * 0.9  # the loader sleeps; an interval may cut a step
        assert worker["step_seconds"] >= worker["phases"]["input"]
    assert found["sentence"] in " ".join(shown.run("status").split())


def test_metrics_has_every_step_and_sample_of_each_rank(shown: Shown) -> None:
    for one in shown.lines:
        validator("metrics").validate(one)
    steps = [(one["step"], one["steps"], one["rank"]) for one in shown.lines if one["event"] == "step"]
    assert steps == [(step, STEPS, 0) for step in range(1, STEPS + 1)]
    for rank in range(RANKS):
        assert (shown.sum("steps", rank), shown.sum("samples", rank)) == (STEPS, STEPS * BATCH)
        assert len(shown.timing(rank)) >= 4
    fastest = [max(one["samples"] / one["window"] for one in shown.timing(rank)) for rank in range(RANKS)]
    whole = [shown.sum("samples", rank) / shown.sum("window", rank) for rank in range(RANKS)]
    assert 0 < shown.samples_per_second <= sum(fastest)  # a mean of the windows' rates
    assert shown.samples_per_second != pytest.approx(sum(whole))  # which the start and the end have lowered
    text = shown.run("metrics", "--openmetrics")
    values = dict(re.findall(r"^(\S+\{[^}]*\}) (\S+)$", text, re.MULTILINE))
    assert values[f'smdp_step{{job="{shown.job}"}}'] == str(STEPS)
    for rank in range(RANKS):
        labels = f'{{job="{shown.job}",rank="{rank}",host="algo-{rank + 1}"}}'
        assert values[f"smdp_rank_steps_total{labels}"] == str(STEPS)
        assert values[f"smdp_rank_samples_total{labels}"] == str(STEPS * BATCH)


def test_status_and_size_show_the_rate_of_the_events(shown: Shown) -> None:
    status = " ".join(shown.run("status").split())
    assert f"speed {STEPS} steps, {number(shown.samples_per_second)} samples/s" in status
    assert re.search(r"time input \d+ %.* \(all workers, without the first \d+ s\)", status)
    size = the_document(command_in(shown.folder)("size", "--json"), "size")
    assert (size["hosts"], size["source"]) == (2, f"measured in {shown.job}, a local run at the speed of CPUs")
    assert size["mb_per_second"] > 0


def test_watch_shows_a_running_job_and_compare_shows_both(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shown.folder)
    plan = smdp_launch.plan(
        "job.yaml", settings=["script.hyperparameters.steps=12"], local=True, hosts=2, workers_per_host=1
    )
    job = smdp_launch.launch(plan)
    printed = io.StringIO()
    with redirect_stdout(printed):
        outcome = job.watch(interval=0.1, timeout=120)
    assert outcome.exit_code == ExitCode.OK
    lines = printed.getvalue().splitlines()
    assert {line.partition(":")[0] for line in lines} == {job.name}
    assert len(set(lines)) == len(lines) > 2
    assert any(re.search(r": Training, step \d+ of 12, loss .*left$", line) for line in lines)
    assert re.fullmatch(rf"{job.name}: completed, 12 steps, \S+ samples/s, \S+ steps/s", lines[-1])
    assert job.numbers.step == 12

    document = the_document(command_in(shown.folder)("compare", shown.job, job.name, "--json"), "compare")
    assert document["settings"] == {"hyperparameter steps": {"a": str(STEPS), "b": "12"}}
    assert [document[one]["numbers"]["step"] for one in "ab"] == [STEPS, 12]
    rate = document["a"]["numbers"]["mean_samples_per_second"]
    assert rate == pytest.approx(shown.samples_per_second)
    table = shown.run("compare", shown.job, job.name)
    assert re.search(rf"^ *steps +{STEPS} +12 *$", table, re.MULTILINE)
    assert re.search(r"^ *samples/s +\S+ +\S+ +\d+\.\d\d *$", table, re.MULTILINE)
