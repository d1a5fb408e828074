"""The card of a job in a notebook: a real kernel watches a local job that runs, and the card changes with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import JOB, write_job
from tests.support.notebooks import WatchingClient, notebook_of

# The packages of the kernel print deprecation warnings.
pytestmark = [pytest.mark.runs, pytest.mark.filterwarnings("ignore")]

STEPS = 20
TEXT = JOB.replace("{epochs: 2}", f"{{steps: {STEPS}}}") + 'environment: {SMDP_TIMING_S: "0.4"}\n'
LAUNCH = """\
import smdp_launch
plan = smdp_launch.plan("job.yaml", local=True, hosts=2, workers_per_host=1)
job = smdp_launch.launch(plan)
"""
WATCH = "outcome = job.watch(interval=0.2, timeout=200)"


def rows(card: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", card))


def test_card_of_a_running_job_is_updated_until_its_end(tmp_path: Path) -> None:
    script = Path(__file__).parent / "scripts" / "slow_reader.py"
    write_job(tmp_path, TEXT, script.read_text(encoding="utf-8"))
    client = WatchingClient(notebook_of(tmp_path / "watch.ipynb", LAUNCH, WATCH, "print(outcome.summary)"))
    client.execute()
    (first,) = client.displayed  # one card, which is replaced: no second one below it
    cards = [first, *client.updated]
    assert all(one.startswith('<div class="smdp-card">') for one in cards)
    progress = [rows(one)["progress"] for one in cards if "progress" in rows(one)]
    steps = [int(match[1]) for one in progress if (match := re.match(rf"step (\d+) of {STEPS}, loss ", one))]
    assert len(set(steps)) > 1
    assert steps == sorted(steps)
    assert any(re.search(r"/s, .* left$", one) for one in progress)
    last = rows(cards[-1])
    assert (last["last seen"], last["ended"]) == ("Completed", "completed")
    assert re.fullmatch(rf"{STEPS} steps, \S+ samples/s, \S+ steps/s", last["speed"])
    assert last["time"].startswith("input ")
    assert last["verdict"].startswith("Bound by ")
    printed = [one.outputs[0].text for one in client.nb.cells if one.outputs and one.outputs[0].output_type == "stream"]
    assert printed == ["completed\n"]
