"""Checkpoints: the script of docs/how-to/checkpoints.md, and damaged or missing files."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from ports import free_port
from torch_version import needs_torch

from smdp_engine.checkpoint import CheckpointError, Checkpoints, ResumableSampler, StopFlag

pytestmark = [pytest.mark.torch, needs_torch]
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/how-to/checkpoints.md"
# As the entrypoint starts a worker: the backend is registered without an import.
WORKER_SITE = ROOT / "containers/entrypoint/smdp_entrypoint/worker_site"
STEP = re.compile(r"step (\d+) loss (\S+)")


def script() -> str:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(code)


def sharded_script() -> str:
    """The script with the changes of the page's second block."""
    code = script()
    (changes,) = re.findall(r"^```diff\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for old, new in re.findall(r"^-(.*\n)((?:\+.*\n)+)", changes, re.MULTILINE):
        assert code.count(old) == 1, old
        code = code.replace(old, re.sub(r"^\+", "", new, flags=re.MULTILINE))
    return code


def environment_of_two(port: int) -> Dict[str, str]:
    return {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "SMDP_HOST_ID": "algo-1",
        "SMDP_JOB_TOKEN": "0123456789abcdef0123456789abcdef",
        "PYTHONPATH": str(WORKER_SITE),
    }


class Ranks:
    """The page's script as two ranks, which write their checkpoints to the same folder."""

    def __init__(self, folder: Path, code: str, slow: bool = False) -> None:
        port = free_port()
        if slow:  # too slow to complete before the signals arrive
            pause = "        __import__('time').sleep(0.02 if step < 30 else 2)\n"
            code = code.replace("        stopped = stop", pause + "        stopped = stop")
        self.processes = [self._start(code, rank, port, folder) for rank in range(2)]

    @staticmethod
    def _start(code: str, rank: int, port: int, folder: Path) -> "subprocess.Popen[str]":
        settings = {
            **environment_of_two(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "SMDP_CHECKPOINT_DIR": str(folder),
        }
        return subprocess.Popen([sys.executable, "-c", code], env=settings, stdout=subprocess.PIPE, text=True)

    def stop_after(self, step: int) -> List[str]:
        """Rank 0's lines up to this step; then rank 1 gets SIGTERM, and rank 0 a little later."""
        output = self.processes[0].stdout
        assert output is not None
        lines = [output.readline() for _ in range(step)]
        self.processes[1].send_signal(signal.SIGTERM)
        time.sleep(0.05)
        self.processes[0].send_signal(signal.SIGTERM)
        return lines

    def losses(self, lines: Optional[List[str]] = None) -> Dict[int, str]:
        # Use the buffer from which readline() takes lines; communicate() would bypass it.
        outs = []
        for process in self.processes:
            assert process.stdout is not None
            with process.stdout as output:
                outs.append(output.read())
        assert [process.wait(120) for process in self.processes] == [0, 0]
        text = "".join(lines or []) + outs[0]
        return {int(step): loss for step, loss in STEP.findall(text)}


@pytest.mark.runs
@pytest.mark.parametrize("made", [script, sharded_script])
def test_stopped_script_resumes_with_the_same_losses(tmp_path: Path, made: Callable[[], str]) -> None:
    whole = Ranks(tmp_path / "whole", made()).losses()
    assert sorted(whole) == list(range(1, 81))
    ranks = Ranks(tmp_path / "stopped", made(), slow=True)
    first = ranks.losses(ranks.stop_after(13))
    last = max(first)
    assert 13 <= last < 80
    if made is script:
        assert json.loads((tmp_path / "stopped/LATEST").read_text())["name"] == f"checkpoint-{last:010d}.pt"
    else:
        assert (tmp_path / f"stopped/checkpoint-{last:010d}/COMPLETE").is_file()
    second = Ranks(tmp_path / "stopped", made()).losses()
    assert min(second) == last + 1
    assert {**first, **second} == whole


def save(folder: Path, *steps: int) -> Checkpoints:
    import torch

    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, weights=torch.full((3,), float(step)))
    return checkpoints


def test_load_without_a_checkpoint_returns_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").load() is None


def test_newest_checkpoint_is_loaded_and_two_are_retained(tmp_path: Path) -> None:
    found = save(tmp_path, 5, 9, 100).load()
    assert found is not None
    assert (found["step"], found["weights"].tolist()) == (100, [100.0] * 3)
    names = ["LATEST", "checkpoint-0000000009.pt", "checkpoint-0000000100.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "LATEST gone", "LATEST damaged"])
def test_damaged_checkpoint_is_not_loaded(tmp_path: Path, damage: str) -> None:
    checkpoints = save(tmp_path, 5, 9)
    newest = tmp_path / "checkpoint-0000000009.pt"
    content = newest.read_bytes()
    expected = 5
    if damage == "cut":
        newest.write_bytes(content[:-100])
    elif damage == "changed":
        newest.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    elif damage == "gone":
        newest.unlink()
    else:
        expected = 9
        (tmp_path / "LATEST").write_text("{") if damage.endswith("damaged") else (tmp_path / "LATEST").unlink()
    found = checkpoints.load()
    assert found is not None
    assert (found["step"], found["weights"].tolist()) == (expected, [float(expected)] * 3)


@pytest.mark.parametrize("damaged", [False, True])
def test_later_checkpoints_do_not_count_for_retention(
    tmp_path: Path, damaged: bool, capfd: "pytest.CaptureFixture[str]"
) -> None:
    save(tmp_path, 90, 100)
    if damaged:
        os.truncate(tmp_path / "checkpoint-0000000100.pt", 500)
        os.truncate(tmp_path / "checkpoint-0000000090.pt", 500)
    checkpoints = save(tmp_path, 10, 20, 30)
    steps = sorted(int(path.stem.partition("-")[2]) for path in tmp_path.glob("*.pt"))
    assert steps == [20, 30, 90, 100]
    found = checkpoints.load()
    assert found is not None
    assert found["step"] == (30 if damaged else 100)
    reported = f"smdp: {tmp_path}/checkpoint-0000000100.pt is not loaded: RuntimeError: "
    assert (reported in capfd.readouterr().err) == damaged


def test_script_that_replaces_torch_load_loads_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: "pytest.CaptureFixture[str]"
) -> None:
    import torch

    checkpoints = save(tmp_path, 5, 9)
    os.truncate(tmp_path / "checkpoint-0000000009.pt", 500)
    monkeypatch.setattr(torch, "load", functools.partial(torch.load, weights_only=True))
    assert (checkpoints.load() or {})["step"] == 5
    reason = "is not loaded: it differs from what was written, according to LATEST"
    assert f"smdp: {tmp_path}/checkpoint-0000000009.pt {reason}\n" in capfd.readouterr().err


class Settings:
    """In a state of the test below."""


@pytest.mark.parametrize("has_digest", [True, False])
def test_class_that_the_script_no_longer_has_is_an_error_and_not_a_new_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_digest: bool
) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, settings=Settings())
    if not has_digest:
        (tmp_path / "LATEST").unlink()
    monkeypatch.delattr(sys.modules[__name__], "Settings")
    with pytest.raises(CheckpointError, match=r"checkpoint-0000000005.pt cannot be read: AttributeError: .*Settings"):
        checkpoints.load()


@pytest.mark.parametrize(("step", "error"), [(-1, ValueError), (1.0, TypeError)])
def test_step_that_cannot_be_saved_is_refused(tmp_path: Path, step: Any, error: type) -> None:
    with pytest.raises(error, match="step must be "):
        Checkpoints(tmp_path).save(step)
    assert list(tmp_path.iterdir()) == []


def test_killed_save_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 5)
    code = f"""
import os, signal, torch
from smdp_engine import checkpoint
from smdp_engine.checkpoint import disk
disk.sync = lambda path: os.kill(os.getpid(), signal.SIGKILL)
checkpoint.Checkpoints({str(tmp_path)!r}).save(6, weights=torch.zeros(3))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert found["step"] == 5
    save(tmp_path, 7)
    assert list(tmp_path.glob(".*")) == []


def test_random_state_is_restored(tmp_path: Path) -> None:
    import random

    import torch

    checkpoints = save(tmp_path, 1)
    expected = (random.random(), torch.rand(3).tolist())
    checkpoints.load()
    assert (random.random(), torch.rand(3).tolist()) == expected


def test_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file" / "folder").save(1)
    with pytest.raises(ValueError, match="keep_last must be 1"):
        Checkpoints(tmp_path, keep=0)
    assert issubclass(CheckpointError, Exception)


TWO_SAVE = """
import os, sys, threading
import torch, torch.distributed as dist
from smdp_engine.checkpoint import CheckpointError, Checkpoints
dist.init_process_group("smddp")
checkpoints = Checkpoints(sys.argv[1])
for state in (torch.zeros(1_000_000), threading.Lock()):
    try:
        checkpoints.save(1, state=state)
    except CheckpointError as error:
        os.write(1, f"error: {error}\\n".encode())
    dist.barrier()
    assert os.listdir(sys.argv[1]) == [], os.listdir(sys.argv[1])
try:
    checkpoints.save(2 + dist.get_rank(), state=1)
except CheckpointError as error:
    os.write(1, f"error: {error}\\n".encode())
checkpoints.save(2, state=torch.zeros(10))
assert sorted(os.listdir(sys.argv[1])) == ["LATEST", "checkpoint-0000000002.pt"]
dist.destroy_process_group()
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="a small disk needs root")
def test_failed_save_is_an_error_on_every_rank_and_leaves_no_file(tmp_path: Path) -> None:
    """On a disk of 512 KiB, and with a state that cannot be pickled; both ranks continue afterwards."""
    folder = tmp_path / "small"
    folder.mkdir()
    both = """
        mount -t tmpfs -o size=512k none "$2"
        RANK=1 LOCAL_RANK=1 "$0" -c "$1" "$2" & RANK=0 LOCAL_RANK=0 "$0" -c "$1" "$2"
        code=$?; wait $! && exit $code
        """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", both, sys.executable, TWO_SAVE, str(folder)],
        env=environment_of_two(free_port()), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    errors = [line.partition("error: ")[2] for line in done.stdout.splitlines()]
    others = "rank 0 could not write the checkpoint of step 1; rank 0's error gives the reason"
    different = "the ranks save different steps, from 2 to 3: pass the same step on all ranks"
    assert [errors.count(others), errors.count(different), len(errors)] == [2, 2, 6], done.stdout + done.stderr
    full, lock = (line for line in errors if line not in {others, different})
    assert re.match(rf"the checkpoint of step 1 could not be written to {folder}, where \d+ bytes are free: ", full)
    assert "cannot pickle" in lock


def test_stop_flag_is_exchanged_every_nth_call() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        heard: List[int] = []
        signal.signal(signal.SIGTERM, lambda signum, frame: heard.append(signum))
        flag = StopFlag(every=3)
        assert [flag.agreed() for _ in range(3)] == [False] * 3
        os.kill(os.getpid(), signal.SIGTERM)
        assert flag.asked
        assert heard == [signal.SIGTERM]
        assert [flag.agreed() for _ in range(3)] == [False, False, True]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sampler_resumes_within_its_epoch_and_starts_the_next_at_zero() -> None:
    sampler = ResumableSampler(range(10))
    sampler.set_epoch(4)
    sampler.advance(6)
    other = ResumableSampler(range(10))
    other.load_state_dict(sampler.state_dict())
    other.set_epoch(4)
    assert (list(other), len(other)) == ([6, 7, 8, 9], 4)
    other.set_epoch(5)
    assert (list(other), len(other)) == (list(range(10)), 10)
    other.load_state_dict({"epoch": 5, "position": 3, "ranks": 2})
    assert list(other) == [6, 7, 8, 9]


@pytest.mark.parametrize("name", ["RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"])
def test_sampler_that_draws_each_order_is_refused(name: str) -> None:
    from torch.utils.data import DistributedSampler, SequentialSampler, sampler

    given = ([1.0] * 12, 12) if name == "WeightedRandomSampler" else (range(12),)
    with pytest.raises(ValueError, match=f"{name} draws a new order .*DistributedSampler.* subclass whose set_epoch"):
        ResumableSampler(getattr(sampler, name)(*given))
    ResumableSampler(SequentialSampler(range(12)))  # type: ignore[arg-type]
    ResumableSampler(DistributedSampler(range(12), 1, 0))  # type: ignore[arg-type]


def test_random_order_that_depends_on_the_epoch_is_resumed() -> None:
    import torch
    from torch.utils.data import RandomSampler, WeightedRandomSampler

    class Seeded(WeightedRandomSampler):
        def __iter__(self) -> Any:
            self.generator = torch.Generator()
            self.generator.manual_seed(3)
            return super().__iter__()

    generator = torch.Generator()
    for inner in (RandomSampler(range(12), generator=generator), Seeded([1.0] * 12, 12)):  # type: ignore[arg-type]
        sampler = ResumableSampler(inner)
        sampler.set_epoch(3)
        whole = list(_seeded(sampler, generator))
        sampler.advance(5)
        assert list(_seeded(sampler, generator)) == whole[5:]


def _seeded(sampler: ResumableSampler, generator: Any) -> Any:
    generator.manual_seed(sampler.epoch)
    return sampler
