"""Forks ranks that train with FSDP, save, and resume on other numbers of ranks: ``python fsdp_ranks.py FOLDER BACKEND
VARIANT``.

VARIANT is ``fully_shard`` (DTensors), ``mesh`` (FullyShardedDataParallel with DTensors) or ``sharded``
(FullyShardedDataParallel with ShardedTensors).
"""

import copy
import functools
import json
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, List, Tuple

import torch
import torch.distributed as dist
from sharded_ranks import finished, forked
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard

from smdp_engine.checkpoint import ShardedCheckpoints

RANKS = 4
FOLDER, BACKEND, VARIANT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def made() -> Tuple[Any, Any]:
    """A model whose shapes no number of ranks divides, and its optimizer."""
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(7, 13), torch.nn.ReLU(), torch.nn.BatchNorm1d(13), torch.nn.Linear(13, 3)
    )
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if VARIANT == "fully_shard":
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        given = {"device_mesh": mesh} if VARIANT == "mesh" else {}
        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True, **given)
        FullyShardedDataParallel.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def trained(model: Any, optimizer: Any, first: int, steps: int) -> List[float]:
    """The losses. All ranks read the same batches, so that the number of ranks does not matter."""
    losses = []
    for step in range(first, first + steps):
        batch = torch.randn(8, 7, generator=torch.Generator().manual_seed(step))
        loss = (model(batch) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole(model: Any, optimizer: Any) -> Dict[str, Any]:
    """A copy of all values, in full on every rank."""
    states = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    return copy.deepcopy({"model": states[0], "optimizer": states[1]["state"]})


def save(rank: int) -> None:
    model, optimizer = made()
    trained(model, optimizer, 0, 3)
    checkpoints = ShardedCheckpoints(FOLDER / "saved")
    for_model, for_optimizer = get_state_dict(model, optimizer)
    checkpoints.async_save(3, model=for_model, optimizer=for_optimizer)
    expected = whole(model, optimizer)
    losses = trained(model, optimizer, 3, 3)  # while it is saved
    checkpoints.wait()
    if rank == 0:
        torch.save({"state": expected, "losses": losses}, FOLDER / "expected.pt")


def resume(expected: Dict[str, Any], _: int) -> None:
    model, optimizer = made()
    for_model, for_optimizer = get_state_dict(model, optimizer)
    found = ShardedCheckpoints(FOLDER / "saved").load(model=for_model, optimizer=for_optimizer)
    assert found is not None
    assert found["step"] == 3
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    same(whole(model, optimizer), expected["state"], "")
    losses = trained(model, optimizer, 3, 3)
    torch.testing.assert_close(losses, expected["losses"], rtol=1e-5, atol=0)


def same(found: Any, expected: Any, path: str) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for name in expected:
            same(found[name], expected[name], f"{path}.{name}")
    else:
        assert torch.equal(found, expected), path


def main() -> None:
    warnings.simplefilter("ignore")  # of FSDP on a CPU
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True)
    finished(forked(RANKS, save, BACKEND))
    expected = torch.load(FOLDER / "expected.pt")
    # For a rank without a row, torch creates an empty part on the backend's first device, which is a GPU for smddp.
    for world_size in (1, 3) if (VARIANT, BACKEND) == ("sharded", "smddp") else (1, 3, 8):
        finished(forked(world_size, functools.partial(resume, expected), BACKEND))
    marker = json.loads((FOLDER / "saved/checkpoint-0000000003/COMPLETE").read_text(encoding="utf-8"))
    print(json.dumps({"parts": sorted(one for one in marker["files"] if one.endswith(".distcp"))}))


if __name__ == "__main__":
    main()
