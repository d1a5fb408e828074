"""The template's job is interrupted at any moment as spot training is, and its model is what it would have been."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog.faults import Fault
from smdp_launch.jobs.follow import StatusChanged
from tests.endtoend.conftest import Ran
from tests.endtoend.test_mnist import SCRIPTS, digits, model, train

__all__ = ["digits"]

pytestmark = pytest.mark.torch
STEPS, EVERY = 60, 10
SECONDS = 2.0  # without capacity
#: A checkpoint that takes its time to be written, and to be sent.
PADDING = '"padding": torch.zeros(48_000_000, dtype=torch.uint8), '


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = shutil.copytree(SCRIPTS, tmp_path_factory.mktemp("scripts") / "scripts")
    script = folder / "mnist_ddp.py"
    text = script.read_text()
    assert '{"step": step, ' in text
    script.write_text(text.replace('{"step": step, ', f'{{"step": step, {PADDING}'))
    return folder


def trained(folder: Path, data: Path, scripts: Path, fault: Fault | None) -> tuple[Ran, dict[str, Any]]:
    settings = {"steps": STEPS, "checkpoint-every": EVERY}
    ran = train(folder, data, scripts, fault=fault, workers=1, **settings)
    return ran, model(ran, folder)


@pytest.fixture(scope="module")
def whole(digits: Path, scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[float, dict[str, Any]]:
    """Without an interruption: how many seconds its hosts trained, and its model."""
    ran, found = trained(tmp_path_factory.mktemp("whole"), digits, scripts, None)
    (lasted,) = (one.lasted for one in ran.seen if isinstance(one, StatusChanged) and one.before == "Training")
    assert lasted is not None
    return lasted, found


def moment(kind: str, lasts: float, chance: random.Random) -> Fault:
    """One of a kind, on a job whose hosts train for ``lasts`` seconds; with the whole notice, a short one or none."""
    grace = chance.choice([120.0, 0.5, 0.0])
    fault = Fault("spot", "algo-1", 0, seconds=SECONDS, grace=grace)
    if kind == "before the first checkpoint":
        return Fault(**{**vars(fault), "step": chance.randrange(1, EVERY)})
    if kind == "during the write":  # the step is told right before its checkpoint is written
        return Fault(**{**vars(fault), "step": EVERY * chance.randrange(1, STEPS // EVERY), "grace": 0.0})
    if kind == "during the upload":  # the next look at the folder finds the checkpoint of the step before
        return Fault(**{**vars(fault), "step": EVERY * chance.randrange(1, STEPS // EVERY) + 1})
    return Fault(**{**vars(fault), "after": chance.uniform(0.0, lasts)})


KINDS = ("during the write", "any", "before the first checkpoint", "during the upload")


def interrupt(folder: Path, data: Path, scripts: Path, whole: tuple[float, dict[str, Any]], fault: Fault) -> str:
    """What was seen of it, in a word."""
    import torch

    ran, found = trained(folder, data, scripts, fault)
    _, expected = whole
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], one) for name, one in expected.items()), fault
    changes = [one for one in ran.seen if isinstance(one, StatusChanged)]
    outcome = ran.followed.outcome
    if "Interrupted" not in [one.status for one in changes]:
        assert fault.after is not None  # the job was quicker this time
        return "ended before"
    (away,) = (one.lasted for one in changes if one.before == "Interrupted")
    assert away is not None and away >= SECONDS
    assert outcome.training_seconds is not None and outcome.billable_seconds is not None
    assert abs(outcome.training_seconds - outcome.billable_seconds - away) <= 1  # each is rounded
    went_on = [one.text for one in ran.lines if one.text.startswith("goes on after step")]
    if fault.grace == 120.0 and fault.step is not None and fault.step > EVERY:  # all that was written is kept
        assert int(went_on[0].rsplit(None, 1)[1]) >= (fault.step - 1) // EVERY * EVERY, (fault, went_on)
    if not went_on:
        return "began again"
    lost = fault.step is not None and int(went_on[0].rsplit(None, 1)[1]) < fault.step // EVERY * EVERY
    return "went on, the checkpoint before was lost" if lost else "went on"


@pytest.mark.runs
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(  # while it writes
            Fault("spot", "algo-1", 0, step=3 * EVERY, seconds=SECONDS, grace=0.0), "", id="without notice"
        ),
        pytest.param(
            Fault("spot", "algo-1", 0, step=3 * EVERY + 4, seconds=SECONDS),
            "went on",
            id="with notice",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_an_interrupted_job_ends_as_if_it_had_not_been(
    fault: Fault, expected: str, digits: Path, scripts: Path, whole: tuple[float, dict[str, Any]], tmp_path: Path
) -> None:
    told = interrupt(tmp_path, digits, scripts, whole, fault)
    print(fault, told)
    assert told.startswith(expected) and told != "ended before"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_interruptions_change_nothing(
    digits: Path, scripts: Path, whole: tuple[float, dict[str, Any]], tmp_path: Path
) -> None:
    chance, seen = random.Random(11), Counter[str]()
    for number in range(50):
        kind = KINDS[number % len(KINDS)]
        folder = tmp_path / str(number)
        folder.mkdir()
        told = interrupt(folder, digits, scripts, whole, moment(kind, whole[0], chance))
        seen[f"{kind}: {told}"] += 1
        shutil.rmtree(folder)
    ended = {told: sum(times for one, times in seen.items() if one.endswith(told)) for told in ("went on", "lost")}
    assert ended["went on"] >= 5 and ended["lost"] >= 5, seen
    assert seen["any: ended before"] <= 6 and seen["before the first checkpoint: began again"] >= 6, seen
    for told, times in sorted(seen.items()):
        print(f"{times:3d}  {told}")
