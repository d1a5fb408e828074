"""The template's job is interrupted at any moment, as in spot training, and its model does not change."""

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
from tests.support.jobs.mnist import SCRIPTS, digits, model, train

__all__ = ["digits"]

pytestmark = pytest.mark.torch
STEPS, EVERY = 60, 10
SECONDS = 2.0  # without capacity
#: A checkpoint that takes long to write and to upload.
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
    """Seconds of training and the model of a run without an interruption."""
    ran, found = trained(tmp_path_factory.mktemp("whole"), digits, scripts, None)
    (lasted,) = (one.lasted for one in ran.seen if isinstance(one, StatusChanged) and one.before == "Training")
    assert lasted is not None
    return lasted, found


def moment(kind: str, lasts: float, chance: random.Random) -> Fault:
    """A fault of this kind for a job that trains for ``lasts`` seconds, with the full notice, a short one or none."""
    grace = chance.choice([120.0, 0.5, 0.0])
    fault = Fault("spot", "algo-1", 0, seconds=SECONDS, grace=grace)
    if kind == "before the first checkpoint":
        return Fault(**{**vars(fault), "step": chance.randrange(1, EVERY)})
    if kind == "during the write":  # the step is reported right before its checkpoint is written
        return Fault(**{**vars(fault), "step": EVERY * chance.randrange(1, STEPS // EVERY), "grace": 0.0})
    if kind == "during the upload":  # the next poll of the folder finds the checkpoint of the step before
        return Fault(**{**vars(fault), "step": EVERY * chance.randrange(1, STEPS // EVERY) + 1})
    return Fault(**{**vars(fault), "after": chance.uniform(0.0, lasts)})


KINDS = ("during the write", "any", "before the first checkpoint", "during the upload")


def interrupt(folder: Path, data: Path, scripts: Path, whole: tuple[float, dict[str, Any]], fault: Fault) -> str:
    """The result as a short text."""
    import torch

    ran, found = trained(folder, data, scripts, fault)
    _, expected = whole
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], one) for name, one in expected.items()), fault
    changes = [one for one in ran.seen if isinstance(one, StatusChanged)]
    outcome = ran.followed.outcome
    if "Interrupted" not in [one.status for one in changes]:
        assert fault.after is not None  # the job was faster this time
        return "ended before"
    (away,) = (one.lasted for one in changes if one.before == "Interrupted")
    assert away is not None and away >= SECONDS
    assert outcome.training_seconds is not None and outcome.billable_seconds is not None
    assert abs(outcome.training_seconds - outcome.billable_seconds - away) <= 1  # each is rounded
    continued = [one.text for one in ran.lines if one.text.startswith("continues after step")]
    if fault.grace == 120.0 and fault.step is not None and fault.step > EVERY:  # every written checkpoint is uploaded
        assert int(continued[0].rsplit(None, 1)[1]) >= (fault.step - 1) // EVERY * EVERY, (fault, continued)
    if not continued:
        return "began again"
    lost = fault.step is not None and int(continued[0].rsplit(None, 1)[1]) < fault.step // EVERY * EVERY
    return "continued, the checkpoint before was lost" if lost else "continued"


@pytest.mark.runs
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(  # while it writes
            Fault("spot", "algo-1", 0, step=3 * EVERY, seconds=SECONDS, grace=0.0), "", id="without notice"
        ),
        pytest.param(
            Fault("spot", "algo-1", 0, step=3 * EVERY + 4, seconds=SECONDS),
            "continued",
            id="with notice",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_interrupted_job_has_the_result_of_an_uninterrupted_one(
    fault: Fault, expected: str, digits: Path, scripts: Path, whole: tuple[float, dict[str, Any]], tmp_path: Path
) -> None:
    result = interrupt(tmp_path, digits, scripts, whole, fault)
    print(fault, result)
    assert result.startswith(expected) and result != "ended before"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_interruptions_do_not_change_the_result(
    digits: Path, scripts: Path, whole: tuple[float, dict[str, Any]], tmp_path: Path
) -> None:
    chance, seen = random.Random(11), Counter[str]()
    for number in range(50):
        kind = KINDS[number % len(KINDS)]
        folder = tmp_path / str(number)
        folder.mkdir()
        result = interrupt(folder, digits, scripts, whole, moment(kind, whole[0], chance))
        seen[f"{kind}: {result}"] += 1
        shutil.rmtree(folder)
    ended = {
        result: sum(times for one, times in seen.items() if one.endswith(result)) for result in ("continued", "lost")
    }
    assert ended["continued"] >= 5 and ended["lost"] >= 5, seen
    assert seen["any: ended before"] <= 6 and seen["before the first checkpoint: began again"] >= 6, seen
    for result, times in sorted(seen.items()):
        print(f"{times:3d}  {result}")
