"""Forks ranks that save or load sharded checkpoints: ``python sharded_ranks.py CASE FOLDER [ARGUMENT...]``.

torch is imported once. Hosts have folders of their own, ``FOLDER/host-0`` and so on, and `in_s3` combines them as the
platform's copy does.
"""

import atexit
import ctypes
import hashlib
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from smdp_engine.checkpoint import CheckpointError, ShardedCheckpoints, commit, saving, written_files

RANKS, HOSTS = 4, 2


def state_of(step: int, width: int = 23) -> Dict[str, Any]:
    """Tensors of many types and shapes, whose values depend on the step."""
    random = torch.Generator().manual_seed(step)
    model = {f"layer.{number}": torch.randn(number + 1, width, generator=random) for number in range(12)}
    odd = {
        "scalar": torch.tensor(float(step)),
        "empty": torch.empty(0, 3),
        "bfloat16": torch.randn(5, 7, generator=random).to(torch.bfloat16),
        "transposed": torch.randn(6, 9, generator=random).t(),
        "flags": torch.tensor([True, False, step % 2 == 0]),
    }
    return {"model": {**model, **odd}, "numbers": (step, [1, {"two": 2.5}])}


def digest_of(value: Any) -> str:
    """Of all bytes of a state."""
    digest = hashlib.sha256()

    def add(one: Any) -> None:
        if isinstance(one, torch.Tensor):
            digest.update(f"{one.dtype}{tuple(one.shape)}".encode())
            whole = one.detach().contiguous()
            digest.update(ctypes.string_at(whole.data_ptr(), whole.nbytes) if whole.numel() else b"")
        elif isinstance(one, dict):
            for key in one:
                digest.update(str(key).encode())
                add(one[key])
        elif isinstance(one, (list, tuple)):
            digest.update(type(one).__name__.encode())
            for item in one:
                add(item)
        else:
            digest.update(repr(one).encode())

    add(value)
    return digest.hexdigest()


def _remove(meeting: Path, parent: int) -> None:
    if os.getpid() == parent:  # some ranks run these functions too
        meeting.unlink(missing_ok=True)


def forked(world_size: int, work: Callable[[int], None], backend: str = "gloo") -> List[int]:
    """Start the ranks and return their processes."""
    meeting = tempfile.mktemp(prefix="ranks-")
    atexit.register(_remove, Path(meeting), os.getpid())
    children = []
    for rank in range(world_size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), SMDP_HOST_ID=f"host-{host_of(rank)}")
                if backend == "smddp":
                    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
                dist.init_process_group(
                    backend, f"file://{meeting}", timedelta(seconds=60), world_size=world_size, rank=rank
                )
                work(rank)
                if dist.is_initialized():
                    dist.barrier()  # a rank that exits earlier is an error of the others
                    dist.destroy_process_group()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return children


def finished(children: List[int]) -> None:
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * len(children), codes


def host_of(rank: int) -> int:
    return rank * HOSTS // RANKS


def files_in(folder: Path) -> Dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def in_s3(before: Path, hosts: List[Path], bucket: Path) -> None:
    """What is in S3 after each host, which began with the files of ``before``, has uploaded and deleted its files."""
    shutil.copytree(before, bucket)
    for host in hosts:
        own, known = files_in(host), files_in(before)
        for name in known.keys() - own.keys():
            (bucket / name).unlink(missing_ok=True)
        for name, path in own.items():
            if name not in known or path.read_bytes() != known[name].read_bytes():
                (bucket / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, bucket / name)


def save_on_all(folder: Path, step: int, name: str = "host", backend: str = "gloo", **options: Any) -> None:
    def work(rank: int) -> None:
        own = folder / f"{name}-{host_of(rank)}"
        ShardedCheckpoints(own, **options).save(step, **state_of(step))

    finished(forked(RANKS, work, backend))


# --- A kill at each operation on the disk ---


class Killer:
    """Kills this process right before its ``last``-th operation on a file or folder below ``folder``."""

    def __init__(self, folder: Path, last: Optional[int]) -> None:
        self.count, self._last, self._folder = 0, last, str(folder)
        sys.addaudithook(self._hear)
        write, sync = written_files._HashedFile.write, os.fsync
        written_files._HashedFile.write = lambda *given: self._before(write, *given)  # type: ignore[method-assign]
        os.fsync = lambda *given: self._before(sync, *given)

    def _hear(self, event: str, arguments: Tuple[Any, ...]) -> None:
        changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir") or (
            event == "open" and isinstance(arguments[1], str) and "w" in arguments[1]
        )
        if changes and str(arguments[0]).startswith(self._folder):
            self._operate()

    def _before(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._operate()
        return function(*arguments)

    def _operate(self) -> None:
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def save_killed(
    folder: Path, before: Path, victim: int, last: Optional[int], counts: Path, step: int = 2, count: int = HOSTS
) -> None:
    """All ranks save a step on ``count`` hosts, with the state of step 2, and one of them is killed. Then all are, as
    when the hosts are taken away."""
    hosts = [folder / f"host-{number}" for number in range(count)]
    for host in hosts:
        shutil.copytree(before, host)

    def work(rank: int) -> None:
        own = hosts[host_of(rank) % count]
        checkpoints = ShardedCheckpoints(own, keep_last=1)
        killer = Killer(own, last if rank == victim else None)
        # Both ways to save, in turn.
        (checkpoints.save if last is None or last % 2 else checkpoints.async_save)(step, **state_of(2))
        checkpoints.wait()
        (counts / str(rank)).write_text(str(killer.count))

    children = forked(RANKS, work)
    os.waitpid(children[victim], 0)
    for rank, child in enumerate(children):
        if rank != victim:
            if last is not None:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def kills(folder: Path, moments: int, step: int = 2, count: int = HOSTS) -> None:
    """The folder has a checkpoint of step 1, and a save of ``step`` is killed. If that is 1 too, the last operations
    replace the checkpoint."""
    save_on_all(folder / "first", 1)
    before = folder / "before"
    (folder / "empty").mkdir()
    in_s3(folder / "empty", [folder / "first" / f"host-{number}" for number in range(HOSTS)], before)
    (folder / "counts").mkdir()
    save_killed(folder / "whole", before, 0, None, folder / "counts", step, count)
    counts = [int((folder / "counts" / str(rank)).read_text()) for rank in range(RANKS)]
    every = [(rank, number) for rank in range(RANKS) for number in range(1, counts[rank] + 1)]
    every = every if step > 1 else [(0, number) for number in range(counts[0] - moments + 1, counts[0] + 1)]
    assert len(every) >= moments, counts
    expected = {digest_of(state_of(1)): 1, digest_of(state_of(2)): step}
    restored = [0, 0]
    for number in range(moments):
        rank, last = every[number * len(every) // moments]
        one = folder / "one"
        save_killed(one, before, rank, last, folder / "counts", step, count)
        in_s3(before, [one / f"host-{host}" for host in range(count)], one / "s3")
        found = ShardedCheckpoints(one / "s3").load()
        assert found is not None, (rank, last)
        loaded = found.pop("step")
        digest = digest_of(found)
        assert expected[digest] == loaded, (rank, last, loaded)
        restored[[*expected].index(digest)] += 1
        shutil.rmtree(one)
    print(json.dumps({"moments": moments, "operations": counts, "restored": restored}))


# --- Other numbers of ranks, DTensors, errors ---


def reshards(folder: Path, backend: str) -> None:
    save_on_all(folder, 7, backend=backend)
    (folder / "empty").mkdir()
    in_s3(folder / "empty", [folder / f"host-{number}" for number in range(HOSTS)], folder / "s3")

    def work(rank: int) -> None:
        found = ShardedCheckpoints(folder / "s3").load()
        assert found is not None
        assert found.pop("step") == 7
        assert digest_of(found) == digest_of(state_of(7)), rank

    for world_size in (1, 3, 8):
        finished(forked(world_size, work, backend))
    print(json.dumps({"marker": json.loads((folder / "s3/checkpoint-0000000007/COMPLETE").read_text())}))


def dtensors(folder: Path) -> None:
    whole = torch.arange(10 * 6, dtype=torch.float32).reshape(10, 6)

    def placed(world_size: int, values: torch.Tensor, dimension: int) -> Any:
        return distribute_tensor(values, init_device_mesh("cpu", (world_size,)), [Shard(dimension)])

    def save(rank: int) -> None:
        ShardedCheckpoints(folder).async_save(3, model={"w": placed(RANKS, whole, 0), "b": torch.ones(5)})

    def save_and_exit(rank: int) -> None:
        save(rank)
        atexit._run_exitfuncs()  # os._exit, with which a forked rank ends, does not

    finished(forked(RANKS, save_and_exit))

    def load(world_size: int) -> Callable[[int], None]:
        def work(rank: int) -> None:
            into = {"w": placed(world_size, torch.zeros(10, 6), 1)}
            found = ShardedCheckpoints(folder).load(model=into)
            assert found is not None
            assert torch.equal(into["w"].full_tensor(), whole)
            assert found["model"]["w"] is into["w"]
            assert torch.equal(found["model"]["b"], torch.ones(5))

        return work

    for world_size in (1, 3):
        finished(forked(world_size, load(world_size)))
    found = ShardedCheckpoints(folder).load()
    assert found is not None
    assert torch.equal(found["model"]["w"], whole)


def errors(folder: Path) -> None:
    """The disk of one rank fails in an asynchronous save: each rank gets the error at its next call, then it works."""

    def work(rank: int) -> None:
        own = folder / f"host-{host_of(rank)}"
        checkpoints = ShardedCheckpoints(own)
        checkpoints.save(1, **state_of(1))
        if rank == 3:
            (own / "checkpoint-0000000002").mkdir()
            (own / "checkpoint-0000000002/.__3_0.distcp.partial").mkdir()
        dist.barrier()
        checkpoints.async_save(2, **state_of(2))
        try:
            checkpoints.async_save(3, **state_of(3))
        except CheckpointError as error:
            message = str(error)
        assert "the checkpoint of step 2 was not saved: rank 3: " in message, message
        assert "IsADirectoryError" in message, message
        dist.barrier()  # each rank removes its own part
        assert not [*own.glob("checkpoint-0000000002/__*")]
        checkpoints.save(3, **state_of(3))
        try:
            checkpoints.save(4, model={"w": torch.ones(4 if rank == 2 else 5)})
        except CheckpointError as error:
            message = str(error)
        assert "do not fit together" in message, message
        try:
            checkpoints.save(4, model=state_of(4), bad=iter([1]) if rank else (one for one in [1]))
        except CheckpointError as error:
            message = str(error)
        assert ("cannot pickle" in message) == (rank == 0), message
        checkpoints.save(5, **state_of(5))
        try:
            checkpoints.save(7 if rank == 2 else 6, **state_of(6))
        except CheckpointError as error:
            message = str(error)
        assert "the ranks save different steps, from 6 to 7" in message, message
        dist.barrier()
        assert not [*own.glob("checkpoint-000000000[67]/*")]
        checkpoints.save(7, **state_of(7))

    finished(forked(RANKS, work))


def groups(folder: Path) -> None:
    """Two groups save at the same time, each in its folder, and one rank has created another instance before."""

    def work(rank: int) -> None:
        own = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
        if rank == 0:
            ShardedCheckpoints(folder / "unused")
        checkpoints = ShardedCheckpoints(folder / f"group-{rank // 2}", group=own, timeout=30, keep_last=12)
        for step in range(1, 13):
            dist.barrier()
            checkpoints.save(step, weights=torch.full((10_000 + step,), float(rank // 2)))

    finished(forked(RANKS, work))
    for number in range(2):
        path = folder / f"group-{number}"
        for step in range(12, 0, -1):
            found = ShardedCheckpoints(path).load()
            assert found is not None
            assert found["step"] == step
            assert torch.equal(found["weights"], torch.full((10_000 + step,), float(number)))
            (path / f"checkpoint-{step:010d}" / "COMPLETE").unlink()


def lost(folder: Path) -> None:
    """Rank 1 loses rank 0, which has committed the save of a step that was saved before."""
    path = folder / "checkpoint-0000000001"

    def never_read(agreement: Any, part: Any) -> Any:
        marker = (path / "COMPLETE").read_bytes()
        agreement._store.set(agreement._key(f"part/{agreement._rank}"), pickle.dumps(part))
        while (path / "COMPLETE").read_bytes() == marker:
            time.sleep(0.01)
        raise ConnectionError("rank 0 has exited")

    def work(rank: int) -> None:
        checkpoints = ShardedCheckpoints(folder, keep_last=1, timeout=30)
        checkpoints.save(1, weights=torch.ones(10))
        dist.barrier()
        commit._LAST_READ, commit.Agreement._follow = 0.1, never_read  # type: ignore[method-assign]
        try:
            checkpoints.save(1, weights=torch.full((10,), 2.0))
            assert rank == 0
        except CheckpointError as error:
            assert rank == 1 and "rank 1 lost the connection" in str(error), error

    finished(forked(2, work))
    found = ShardedCheckpoints(folder).load()
    assert found is not None
    assert torch.equal(found["weights"], torch.full((10,), 2.0))


def destroyed(folder: Path) -> None:
    """The process group is destroyed before the thread has written its part."""

    def work(rank: int) -> None:
        checkpoints, is_destroyed = ShardedCheckpoints(folder), threading.Event()
        write = saving._Save._write
        saving._Save._write = lambda save: is_destroyed.wait(60) and write(save)  # type: ignore[assignment, return-value, method-assign]
        checkpoints.async_save(1, weights=torch.ones(10))
        dist.destroy_process_group()
        is_destroyed.set()
        checkpoints.wait()

    finished(forked(2, work))
    found = ShardedCheckpoints(folder).load()
    assert found is not None
    assert found["step"] == 1


def snapshots(folder: Path) -> None:
    """The state may change as soon as async_save returns."""

    def work(rank: int) -> None:
        checkpoints = ShardedCheckpoints(folder, keep_last=3)
        weights, count = torch.zeros(100_000), {"n": 0}
        for step in range(1, 4):
            weights.fill_(step)
            count["n"] = step
            checkpoints.async_save(step, weights=weights, count=count)
            weights.fill_(-1)
            count["n"] = -1
        checkpoints.wait()

    finished(forked(2, work))
    for step in (3, 2, 1):
        found = ShardedCheckpoints(folder).load()
        assert found is not None
        assert (found["step"], found["count"]["n"]) == (step, step)
        assert torch.equal(found["weights"], torch.full((100_000,), float(step)))
        (folder / f"checkpoint-{step:010d}" / "COMPLETE").unlink()


def main() -> Iterator[None]:
    torch.set_num_threads(1)
    case, folder, *arguments = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    given = [int(one) if one.isdecimal() else one for one in arguments]
    yield globals()[case](Path(folder), *given)


if __name__ == "__main__":
    list(main())
