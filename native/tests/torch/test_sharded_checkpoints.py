"""Sharded checkpoints: kills, other numbers of ranks, asynchronous saves, errors and damage."""

import json
import os
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest
from ports import free_port
from torch_version import needs_torch, torch_version

from smdp_engine.checkpoint import MARKER, CheckpointError, ShardedCheckpoints

pytestmark = [pytest.mark.torch, needs_torch]
PAGE = Path(__file__).parents[3] / "docs/how-to/torch/fsdp-checkpoints.md"
RANKS = Path(__file__).with_name("sharded_ranks.py")


def run(*arguments: object, script: Path = RANKS, limit_s: float = 280) -> List[str]:
    """The lines that the forked ranks print, without those of events."""
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith('{"smdp_event"')]


def save(folder: Path, *steps: int, **options: Any) -> ShardedCheckpoints:
    import torch

    checkpoints = ShardedCheckpoints(folder, **options)
    for step in steps:
        checkpoints.save(step, weights=torch.full((300,), float(step)), step_again=step)
    return checkpoints


def names_in(folder: Path) -> List[int]:
    return sorted(int(path.name.partition("-")[2]) for path in folder.iterdir())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "moments", [pytest.param(8, id="8 moments"), pytest.param(200, id="200 moments", marks=pytest.mark.runs)]
)
def test_rank_killed_at_any_write_leaves_one_whole_step(tmp_path: Path, moments: int) -> None:
    (line,) = run("kills", tmp_path / "kills", moments, limit_s=3500)
    print(line)
    assert json.loads(line)["moments"] == moments


def test_rank_killed_while_a_step_is_saved_again_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    (line,) = run("kills", tmp_path / "kills", 20, 1, 1)
    print(line)
    assert min(json.loads(line)["restored"]) > 0


@pytest.mark.parametrize("backend", ["gloo", pytest.param("smddp", marks=pytest.mark.runs)])
def test_checkpoint_of_4_ranks_has_the_same_bytes_on_1_3_and_8(tmp_path: Path, backend: str) -> None:
    (line,) = run("reshards", tmp_path / "ranks", backend)
    marker = json.loads(line)["marker"]
    assert sorted(marker["files"]) == [".metadata", *(f"__{rank}_0.distcp" for rank in range(4))]
    assert (marker["world_size"], marker["hosts"], marker["step"]) == (4, 2, 7)


@pytest.mark.runs
def test_dtensor_is_loaded_with_other_placements_and_ranks(tmp_path: Path) -> None:
    run("dtensors", tmp_path / "ranks")


@pytest.mark.runs
@pytest.mark.skipif(torch_version() < (2, 6), reason="torch has no torch.distributed.fsdp.fully_shard")
@pytest.mark.parametrize("backend", ["gloo", "smddp"])
@pytest.mark.parametrize("variant", ["fully_shard", "mesh", "sharded"])
def test_model_and_optimizer_of_fsdp_resume_on_other_numbers_of_ranks(
    tmp_path: Path, variant: str, backend: str
) -> None:
    (line,) = run(tmp_path / "ranks", backend, variant, script=RANKS.with_name("fsdp_ranks.py"))
    assert json.loads(line)["parts"] == [f"__{rank}_0.distcp" for rank in range(4)]


@pytest.mark.runs
@pytest.mark.skipif(torch_version() < (2, 6), reason="torch has no torch.distributed.fsdp.fully_shard")
def test_script_of_the_page_about_fsdp_resumes_on_one_rank(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

    def losses(ranks: int, steps: int, folder: str) -> Dict[int, float]:
        settings = {
            **os.environ,
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            "BACKEND": "gloo",
            "STEPS": str(steps),
            "SMDP_CHECKPOINT_DIR": str(tmp_path / folder),
        }
        command = [sys.executable, "-c", code]
        started = [
            subprocess.Popen(command, env={**settings, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
            for rank in range(ranks)
        ]
        try:
            output, *_ = [one.communicate(timeout=200)[0] for one in started]
        finally:
            for one in started:
                one.kill()
        assert [one.returncode for one in started] == [0] * ranks
        return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)$", output, re.MULTILINE)}

    expected = losses(2, 20, "whole")
    first, second = losses(2, 10, "resumed"), losses(1, 20, "resumed")
    assert (sorted(first), sorted(second)) == ([*range(1, 11)], [*range(11, 21)])
    assert {**first, **second} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("missing", ["torch.distributed.tensor", "torch.distributed.checkpoint.filesystem"])
def test_torch_without_what_is_needed_is_named(tmp_path: Path, missing: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
from smdp_engine.checkpoint import CheckpointError, ShardedCheckpoints
try:
    ShardedCheckpoints({str(tmp_path)!r})
except CheckpointError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "has no torch.distributed.checkpoint that can be used" in done.stdout
    assert missing in done.stdout
    assert "use torch 2.5 or later, or Checkpoints, which saves one file on rank 0 with any version" in done.stdout


def test_error_of_one_rank_is_an_error_on_every_rank(tmp_path: Path) -> None:
    run("errors", tmp_path / "ranks")


def test_two_groups_save_at_the_same_time(tmp_path: Path) -> None:
    run("groups", tmp_path / "ranks")


def test_save_completes_after_its_process_group_is_destroyed(tmp_path: Path) -> None:
    run("destroyed", tmp_path / "ranks")


def test_rank_that_loses_the_others_deletes_no_complete_checkpoint(tmp_path: Path) -> None:
    run("lost", tmp_path / "ranks")


def test_state_may_change_after_async_save(tmp_path: Path) -> None:
    run("snapshots", tmp_path / "ranks")


@pytest.mark.parametrize("case", ["changes_by_the_script", "renames"])
def test_checkpoint_has_the_state_of_one_whole_step(tmp_path: Path, case: str) -> None:
    run(case, tmp_path / "ranks", script=RANKS.with_name("snapshot_ranks.py"))


def test_load_without_a_checkpoint_returns_none(tmp_path: Path) -> None:
    assert ShardedCheckpoints(tmp_path / "none").load() is None


def test_last_and_every_nth_checkpoint_are_retained(tmp_path: Path) -> None:
    save(tmp_path, *range(1, 12), keep_last=2, keep_every=4)
    assert names_in(tmp_path) == [4, 8, 10, 11]
    with pytest.raises(ValueError, match="keep_last must be 1 or more"):
        ShardedCheckpoints(tmp_path, keep_last=0)
    with pytest.raises(ValueError, match="keep_every must be 1 or more"):
        ShardedCheckpoints(tmp_path, keep_every=0)


def test_failed_save_of_a_step_leaves_its_checkpoint_from_before(tmp_path: Path) -> None:
    import torch

    checkpoints = save(tmp_path, 9)
    path = tmp_path / "checkpoint-0000000009"
    before = sorted(path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match="the checkpoint of step 9 was not saved"):
            checkpoints.save(9, weights=torch.ones(300_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.iterdir()) == before
    found = checkpoints.load()
    assert found is not None
    assert found["weights"].tolist() == [9.0] * 300


def test_step_that_is_saved_again_replaces_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    from smdp_engine.checkpoint import saving

    def saved(value: int) -> List[str]:
        checkpoints.save(9, weights=torch.full((300,), float(value)))
        found = checkpoints.load()
        assert found is not None
        assert found["weights"].tolist() == [float(value)] * 300
        return sorted(one.name for one in path.iterdir() if one.name != MARKER)

    def no_space(*_: object) -> None:
        raise OSError("no space")

    checkpoints, path = save(tmp_path), tmp_path / "checkpoint-0000000009"
    assert [saved(value) for value in (1, 2, 3)] == [[".metadata", f"__0_{number}.distcp"] for number in (0, 10, 0)]
    dcp_to_torch_save(path, tmp_path / "one.pt")
    assert torch.load(tmp_path / "one.pt", weights_only=False)["weights"].tolist() == [3.0] * 300
    with monkeypatch.context() as full:
        full.setattr(saving, "write_whole", no_space)
        assert saved(4) == [".metadata", ".metadata.new", "__0_10.distcp"]
    assert saved(5)[0] == ".metadata"


@pytest.mark.parametrize(("step", "error"), [(-1, ValueError), (1.0, TypeError), ("7", TypeError)])
def test_step_that_cannot_be_saved_is_refused(tmp_path: Path, step: Any, error: type) -> None:
    with pytest.raises(error, match="step must be "):
        ShardedCheckpoints(tmp_path).async_save(step)
    assert list(tmp_path.iterdir()) == []


def test_step_of_numpy_is_saved(tmp_path: Path) -> None:
    import numpy

    assert (save(tmp_path, numpy.int64(5)).load() or {})["step"] == 5


def test_parameters_and_tensors_that_require_a_gradient_are_restored_as_such(tmp_path: Path) -> None:
    import torch

    subclass = type("Weights", (torch.Tensor,), {"__module__": __name__})
    globals()["Weights"] = subclass  # where pickle finds it
    model = torch.nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    own = torch.ones(2).as_subclass(subclass)
    state = {"tied": model.weight, "prompt": torch.ones(3, requires_grad=True), "own": own, "plain": torch.ones(3)}
    checkpoints = ShardedCheckpoints(tmp_path)
    checkpoints.save(1, model=model, **state)
    found = checkpoints.load()
    assert found is not None
    kinds = {name: (type(one), one.requires_grad) for name, one in found["model"].named_parameters()}
    assert kinds == {"weight": (torch.nn.Parameter, True), "bias": (torch.nn.Parameter, False)}
    assert found["tied"] is found["model"].weight
    assert torch.equal(found["tied"], model.weight)
    assert (type(found["prompt"]), found["prompt"].requires_grad) == (torch.Tensor, True)
    assert (type(found["own"]), found["own"].tolist()) == (subclass, [1.0, 1.0])
    assert (type(found["plain"]), found["plain"].requires_grad) == (torch.Tensor, False)


def test_container_that_contains_itself_is_saved(tmp_path: Path) -> None:
    import torch

    ring: List[Any] = [torch.ones(2)]
    ring.append(ring)
    checkpoints = ShardedCheckpoints(tmp_path)
    checkpoints.save(1, ring=ring)
    found = checkpoints.load()
    assert found is not None
    assert found["ring"][1] is found["ring"]
    assert found["ring"][0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "marker gone", "marker damaged"])
def test_damaged_checkpoint_is_not_loaded(tmp_path: Path, damage: str, capfd: "pytest.CaptureFixture[str]") -> None:
    checkpoints = save(tmp_path, 5, 9)
    part, marker = tmp_path / "checkpoint-0000000009/__0_0.distcp", tmp_path / "checkpoint-0000000009" / MARKER
    content = part.read_bytes()
    if damage == "cut":
        part.write_bytes(content[:-1])
    elif damage == "changed":
        part.write_bytes(content[:700] + bytes([content[700] ^ 1]) + content[701:])
    elif damage == "gone":
        part.unlink()
    elif damage == "marker gone":
        marker.unlink()
    else:
        marker.write_text("{", encoding="utf-8")
    found = checkpoints.load()
    assert found is not None
    assert (found["step"], found["step_again"], found["weights"].tolist()) == (5, 5, [5.0] * 300)
    assert f"{tmp_path / 'checkpoint-0000000009'} is not loaded: " in capfd.readouterr().err


def test_only_checkpoint_damaged_is_an_error_and_not_a_new_start(tmp_path: Path) -> None:
    checkpoints = save(tmp_path, 9)
    part = tmp_path / "checkpoint-0000000009/__0_0.distcp"
    part.write_bytes(b"x" * part.stat().st_size)
    with pytest.raises(CheckpointError, match="no undamaged checkpoint"):
        checkpoints.load()


def test_tensors_are_read_by_tools_of_torch(tmp_path: Path) -> None:
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    save(tmp_path / "saved", 3)
    dcp_to_torch_save(tmp_path / "saved/checkpoint-0000000003", tmp_path / "one.pt")
    assert torch.load(tmp_path / "one.pt", weights_only=False)["weights"].tolist() == [3.0] * 300


def test_first_save_reports_whether_it_fits_into_the_spot_notice(
    tmp_path: Path, capfd: "pytest.CaptureFixture[str]"
) -> None:
    save(tmp_path, 1, 2)
    output = capfd.readouterr()
    events: List[Dict[str, Any]] = [json.loads(line) for line in output.out.splitlines()]
    assert [(event["event"], event["step"]) for event in events] == [("checkpoint_saved", 1), ("checkpoint_saved", 2)]
    for event in events:
        assert event["spare_s"] == pytest.approx(115 - event["seconds"])
        assert event["bytes"] == event["host_bytes"] > 1200
    (line,) = output.err.splitlines()
    assert line.startswith("smdp: the first checkpoint, of step 1, has ")


def test_random_state_is_restored(tmp_path: Path) -> None:
    import random

    import torch

    checkpoints = save(tmp_path, 1)
    expected = (random.random(), torch.rand(3).tolist())
    checkpoints.load()
    assert (random.random(), torch.rand(3).tolist()) == expected


def test_copy_past_the_caches_has_the_same_bytes() -> None:
    import torch

    from smdp_engine.checkpoint.memory import copy_to

    source = torch.randn(3, 700_001)
    for data in (source, source[1:], source[2], source.to(torch.bfloat16), source.view(torch.int32), source[0, 3:]):
        buffer = torch.zeros(data.shape, dtype=data.dtype)
        assert copy_to(buffer, data)
        assert torch.equal(buffer.view(torch.uint8), data.contiguous().view(torch.uint8))
    complex_ones = torch.view_as_complex(torch.randn(400_000, 2))
    for data in (torch.ones(10), source.t(), source[:, 1:], complex_ones.conj(), torch._neg_view(source)):
        assert not copy_to(torch.zeros(data.shape, dtype=data.dtype), data)  # torch copies these


def test_script_that_exits_without_waiting_completes_its_last_save(tmp_path: Path) -> None:
    code = f"""
import torch
from smdp_engine.checkpoint import ShardedCheckpoints
ShardedCheckpoints({str(tmp_path)!r}).async_save(4, weights=torch.ones(1_000_000))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    found = ShardedCheckpoints(tmp_path).load()
    assert found is not None
    assert (found["step"], found["weights"].sum().item()) == (4, 1_000_000)


def test_asynchronous_save_reports_at_the_next_call_and_never_from_its_thread(
    tmp_path: Path, capfd: "pytest.CaptureFixture[str]"
) -> None:
    """Between the text of a line that the script prints and its end, a thread can print, and both lines are lost."""
    import torch

    checkpoints = ShardedCheckpoints(tmp_path)
    checkpoints.async_save(1, weights=torch.full((300,), 1.0))
    for thread in [one for one in threading.enumerate() if one.name == "smdp-checkpoint"]:
        thread.join(60)
        assert not thread.is_alive()
    assert (tmp_path / "checkpoint-0000000001/COMPLETE").is_file()
    before = capfd.readouterr()
    checkpoints.wait()
    after = capfd.readouterr()
    assert (before.out, before.err) == ("", "")
    assert [json.loads(line)["event"] for line in after.out.splitlines()] == ["checkpoint_saved"]
    assert after.err.startswith("smdp: the first checkpoint, of step 1, ")
    checkpoints.wait()
    assert capfd.readouterr().out == ""
