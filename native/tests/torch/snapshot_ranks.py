"""Forks ranks that change their state right after an asynchronous save: ``python snapshot_ranks.py CASE FOLDER``."""

import ctypes
import json
import sys
import threading
from pathlib import Path
from typing import Any, Callable, List

import torch
from sharded_ranks import digest_of, finished, forked

from smdp_engine.checkpoint import ShardedCheckpoints


def changes_by_the_script(folder: Path) -> None:
    """What a script does right after a save, up to its next optimizer step, does not reach the checkpoint."""

    def work(rank: int) -> None:
        torch.manual_seed(5)
        net = torch.nn.Sequential(torch.nn.Linear(600, 700), torch.nn.BatchNorm1d(700), torch.nn.Linear(700, 900))
        optimizer = torch.optim.Adam(net.parameters())
        checkpoints = ShardedCheckpoints(folder, keep_last=9)

        def step() -> None:
            optimizer.zero_grad()
            net(torch.randn(16, 600)).square().mean().backward()
            optimizer.step()

        def unseen_by_torch() -> None:  # as through a NumPy array
            ctypes.memset(net[0].weight.data_ptr(), 7, net[0].weight.nbytes)

        def in_thread() -> None:
            thread = threading.Thread(target=lambda: net[2].weight.data.fill_(3))
            thread.start()
            thread.join()

        changes: List[Callable[[], Any]] = [
            lambda: net[0].weight.data.clamp_(-0.01, 0.01),
            unseen_by_torch,
            in_thread,
            lambda: net(torch.randn(16, 600)),  # BatchNorm changes its buffers
            lambda: net.load_state_dict({name: torch.zeros_like(one) for name, one in net.state_dict().items()}),
            lambda: [one["exp_avg"].zero_() for one in optimizer.state.values()],
            step,
        ]
        digests = []
        for number, change in enumerate(changes):
            step()
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
            digests.append(digest_of(state))
            checkpoints.async_save(number, **state)
            change()
            assert digest_of(state) != digests[-1], number
        checkpoints.wait()
        if rank == 0:
            (folder / "digests.json").write_text(json.dumps(digests))

    finished(forked(2, work))
    for number, digest in reversed([*enumerate(json.loads((folder / "digests.json").read_text()))]):
        found = ShardedCheckpoints(folder).load()
        assert found is not None
        assert found.pop("step") == number
        assert digest_of(found) == digest, number
        (folder / f"checkpoint-{number:010d}" / "COMPLETE").unlink()


def renames(folder: Path) -> None:
    """The plan of one rank changes, and the other rank has copied its part by then."""

    def work(rank: int) -> None:
        checkpoints = ShardedCheckpoints(folder)
        first, last = torch.ones(400_000), torch.ones(400_000)
        for step, name in enumerate(("last", "last", "renamed", "renamed"), 1):
            first.fill_(step)
            last.fill_(-step)
            checkpoints.async_save(step, tensors={"first": first, name: last})
            first.zero_()
            last.zero_()
            checkpoints.wait()
            found = checkpoints.load()
            assert found is not None
            assert found["step"] == step
            assert sorted(found["tensors"]) == ["first", name]
            assert torch.equal(found["tensors"]["first"], torch.full((400_000,), float(step)))
            assert torch.equal(found["tensors"][name], torch.full((400_000,), -float(step)))

    finished(forked(2, work))


if __name__ == "__main__":
    torch.set_num_threads(1)
    case, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    {"changes_by_the_script": changes_by_the_script, "renames": renames}[case](folder)
