"""Saves and reads the files of a sharded checkpoint, with torch.distributed.checkpoint."""

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import socket
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata
from torch.distributed.checkpoint.planner import ReadItem, SavePlan

from .commit import Agreement, Outcome, Part, error_of
from .disk import write_whole
from .errors import CheckpointError, different_steps
from .marker import MARKER, marked_files, path_of, steps_in, write_marker
from .planning import Buffers, SharingPlanner, is_replica, plan_key
from .random_state import random_state, restore_random_state
from .ranks import begin_to_agree, gather_to_first, rank, scatter_from_first, world_size
from .retention import remove_checkpoint, retained
from .structure import put_tensors, take_tensors
from .written_files import METADATA, NEW_METADATA, Facts, WrittenFiles, reader_at, writer_at

_STRUCTURE = "smdp/structure"
_RANDOM = "smdp/random/"
_PART = re.compile(r"__(\d+)_.*")


@dataclasses.dataclass
class Context:
    """One save, on this rank.

    Args:
        began, deadline: by `time.monotonic`.
        retention: `keep_last` and `keep_every`.
    """

    folder: Path
    step: int
    rank: int
    world_size: int
    began: float
    deadline: float
    retention: Tuple[int, Optional[int]]

    @property
    def path(self) -> Path:
        return path_of(self.folder, self.step)


class Plans:
    """Prepares saves. The ranks exchange their plans only if one of them differs from that of the save before."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._key: Optional[List[Any]] = None
        self._plan = SavePlan([])
        self._metadata: Optional[Metadata] = None
        self._buffers = Buffers()
        # Rank 0 draws the plan's name, since two groups, or ranks that create other numbers of ShardedCheckpoints, must
        # not use one name for two saves.
        self._name, self._saves = "", 0

    def prepare(self, context: Context, state: Mapping[str, Any], copy: bool) -> Callable[[], Outcome]:
        """Plan the save with the other ranks, and copy this rank's part if ``copy``. Any thread may call the result.

        Raises:
            CheckpointError: on every rank, if the state of one rank cannot be saved.
        """
        problem, changed, planner = None, True, SharingPlanner(context.rank, context.world_size)
        try:
            planner.set_up_planner(state_dict=_flat(context, state), is_coordinator=context.rank == 0)
            local = planner.create_local_plan()
            key = plan_key(local)
            changed = key != self._key
        except Exception as error:
            problem = error
        agreed = begin_to_agree(2 if problem is not None else int(changed), "MAX", self._group)
        failure = self._take(planner) if copy and problem is None and not changed else None  # while the ranks agree
        code = agreed()
        if code == 2:
            why = (
                f"{type(problem).__name__}: {problem}"
                if problem is not None
                else "the error of another rank gives the reason"
            )
            raise CheckpointError(f"the state of step {context.step} cannot be saved: {why}") from problem
        if code == 1:
            self._key = None
            self._make_plan(context, planner, local)
            self._key = key
            failure = self._take(planner) if copy else None
        self._saves += 1
        # By the script's thread: it may destroy the process group as soon as this method returns.
        agreement = Agreement(f"{self._name}/{self._saves}", context.rank, context.world_size, context.deadline)
        plan, metadata = self._plan, self._metadata
        return lambda: _Save(context, planner, plan, metadata).run(failure, agreement)

    def _take(self, planner: SharingPlanner) -> Optional[str]:
        """Copy this rank's part of the current plan. The result is the error, None if there is none."""
        try:
            planner.take(self._plan, self._buffers)
        except Exception as error:
            return f"the state cannot be copied: {type(error).__name__}: {error}"
        return None

    def _make_plan(self, context: Context, planner: SharingPlanner, local: SavePlan) -> None:
        plans = gather_to_first(local, self._group)
        answers: List[Any] = []
        if context.rank == 0:
            try:
                made, self._metadata = planner.create_global_plan(plans)
                name = uuid.uuid4().hex
                answers = [(name, plan) for plan in writer_at(context.path).prepare_global_plan(made)]
            except Exception as error:
                answers = [f"{error}"] * context.world_size
        answer = scatter_from_first(answers, self._group)
        if isinstance(answer, str):
            raise CheckpointError(f"the states of the ranks do not fit together: {answer}")
        (self._name, self._plan), self._saves = answer, 0


class _Save:
    """The part of a save that needs no collectives.

    A complete checkpoint of the same step remains until the marker is that of the new one: the new files have other
    names.
    """

    def __init__(self, context: Context, planner: SharingPlanner, plan: SavePlan, metadata: Optional[Metadata]) -> None:
        self._context, self._planner, self._plan, self._metadata = context, planner, plan, metadata
        self._files = WrittenFiles()
        self._writer = writer_at(context.path)
        self._writer.fs = self._files

    def run(self, failure: Optional[str], agreement: Agreement) -> Outcome:
        part = {"error": failure} if failure is not None else self._write()
        outcome = agreement.reach(part, self._commit)
        # A rank that does not know what the others know deletes nothing: the checkpoint may be complete. The next save
        # removes what is left over.
        if outcome.pop("unknown", False):
            return outcome
        if error_of(outcome) is None:
            self._retain(set(outcome["keep"]))
        else:
            self._abandon()
        return outcome

    def _write(self) -> Part:
        path = self._context.path
        try:
            path.mkdir(parents=True, exist_ok=True)
            prefix = dataclasses.replace(self._plan.storage_data, prefix=_free_prefix(path, self._context.rank))
            plan = dataclasses.replace(self._plan, storage_data=prefix)
            results = self._writer.write_data(plan, self._planner).wait()
            for name, facts in self._files.facts.items():
                size = (path / name).stat().st_size
                if size != facts["bytes"]:
                    return {"error": f"{path / name} has {size} bytes, and {facts['bytes']} were written"}
        except BaseException as error:
            self._planner.forget()
            return {"error": f"{path}: {type(error).__name__}: {error}"}
        host = os.environ.get("SMDP_HOST_ID") or socket.gethostname()
        return {"results": results, "files": self._files.facts, "host": host, "step": self._context.step}

    def _commit(self, parts: List[Part]) -> Outcome:
        context, metadata = self._context, self._metadata
        if metadata is None:
            raise CheckpointError("there is no plan")
        steps = [part["step"] for part in parts]
        if min(steps) != max(steps):
            raise CheckpointError(different_steps(min(steps), max(steps)))
        if METADATA in marked_files(context.path):
            self._files.metadata = NEW_METADATA
        self._writer.finish(dataclasses.replace(metadata), [part["results"] for part in parts])
        files: Facts = {}
        hosts: Dict[str, int] = {}
        for part in (*parts, {"files": self._files.facts, "host": parts[0]["host"]}):
            new = {name: facts for name, facts in part["files"].items() if name not in files}
            files.update(new)
            hosts[part["host"]] = hosts.get(part["host"], 0) + sum(facts["bytes"] for facts in new.values())
        seconds, size = round(time.monotonic() - context.began, 3), sum(hosts.values())
        marker = {
            "step": context.step,
            "world_size": context.world_size,
            "hosts": len(hosts),
            "time": round(time.time(), 3),
        }
        older = [step for step in steps_in(context.folder) if step < context.step]
        whole = [step for step in older if (path_of(context.folder, step) / MARKER).exists()]
        keep = sorted(retained([*whole, context.step], *context.retention))
        _write_last(context.path, {**marker, "seconds": seconds, "bytes": size, "files": files})
        return {"keep": keep, "seconds": seconds, "bytes": size, "host_bytes": max(hosts.values()), **marker}

    def _retain(self, keep: "set[int]") -> None:
        """Delete older checkpoints on this host, and the parts of an earlier save of this step."""
        context = self._context
        for step in steps_in(context.folder):
            if step < context.step and step not in keep:
                remove_checkpoint(path_of(context.folder, step))
        for one in context.path.glob("__*"):
            match = _PART.fullmatch(one.name)
            of_rank = int(match[1]) if match else -1
            if of_rank >= context.world_size or (of_rank == context.rank and one.name not in self._files.facts):
                with contextlib.suppress(OSError):
                    one.unlink()
        if context.rank == 0 and NEW_METADATA not in marked_files(context.path):  # left by a save that was killed
            with contextlib.suppress(OSError):
                (context.path / NEW_METADATA).unlink()

    def _abandon(self) -> None:
        """Remove what this rank has written, and before it a marker that lists it."""
        path, own = self._context.path, self._files.facts
        marker = [MARKER] if own.keys() & set(marked_files(path)) else []
        for name in (*marker, *own):
            with contextlib.suppress(OSError):
                (path / name).unlink()
        with contextlib.suppress(OSError):
            path.rmdir()  # if it is empty


def _free_prefix(path: Path, rank: int) -> str:
    """The beginning of the name ``__<rank>_<number>.distcp`` of a new file; torch's writer adds the number's last 0."""
    numbers = itertools.chain([""], itertools.count(1))
    return next(one for one in (f"__{rank}_{number}" for number in numbers) if not (path / f"{one}0.distcp").exists())


def _write_last(path: Path, content: Dict[str, Any]) -> None:
    """Write the marker. Then give the metadata its usual name, which tools of torch read, with a second marker."""
    write_marker(path, content)
    files = dict(content["files"])
    if NEW_METADATA not in files:
        return
    files[METADATA] = files.pop(NEW_METADATA)
    with contextlib.suppress(OSError):  # the checkpoint is complete without it
        write_whole(path / METADATA, lambda partial: shutil.copyfile(str(path / NEW_METADATA), str(partial)))
        write_marker(path, {**content, "files": files})
        (path / NEW_METADATA).unlink()


class _ReadPlanner(DefaultLoadPlanner):
    """Puts what is not a tensor into ``loaded``."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.loaded: Dict[str, Any] = {}

    def load_bytes(self, read_item: ReadItem, value: Any) -> None:
        self.loaded[read_item.dest_index.fqn] = torch.load(value, weights_only=False)


def read_state(folder: Path, step: int, into: Mapping[str, Any], group: Any) -> Dict[str, Any]:
    """The state of a complete checkpoint; DTensors of ``into`` are filled in place."""
    path = path_of(folder, step)
    reader = reader_at(path, METADATA if METADATA in marked_files(path) else NEW_METADATA)
    whole = reader.read_metadata()
    metadata = whole.state_dict_metadata
    sharded = {name: tensor for name, tensor in take_tensors(into)[1].items() if not is_replica(tensor)}
    unknown = sorted(sharded.keys() - metadata.keys())
    if unknown:
        raise CheckpointError(
            f"it has no tensor {unknown[0]}" + (f" and {len(unknown) - 1} others" if unknown[1:] else "")
        )
    saved_by = sum(name.startswith(_RANDOM) for name in metadata)
    own = f"{_RANDOM}{rank(group)}" if saved_by == world_size(group) else ""
    wanted: Dict[str, Any] = {}
    for name, facts in metadata.items():
        if isinstance(facts, BytesStorageMetadata):
            if name in (own, _STRUCTURE):
                wanted[name] = None
        else:
            wanted[name] = sharded[name] if name in sharded else torch.empty(facts.size, dtype=facts.properties.dtype)
    planner = _ReadPlanner()
    _read(reader, whole, planner, wanted)
    state = put_tensors(planner.loaded[_STRUCTURE], wanted)
    restore_random_state(planner.loaded.get(own), saved_by, group)
    return state


def _read(reader: FileSystemReader, metadata: Metadata, planner: _ReadPlanner, wanted: Dict[str, Any]) -> None:
    """Without collectives: this rank reads what it needs."""
    planner.set_up_planner(wanted, metadata, True)
    reader.set_up_storage_reader(metadata, True)
    local = reader.prepare_local_plan(planner.create_local_plan())
    (plan,) = reader.prepare_global_plan(planner.create_global_plan([local]))
    reader.read_data(planner.finish_plan(plan), planner).wait()


def _flat(context: Context, state: Mapping[str, Any]) -> Dict[str, Any]:
    structure, flat = take_tensors(state)
    own: Dict[str, Any] = {f"{_RANDOM}{context.rank}": random_state()}
    if context.rank == 0:
        own[_STRUCTURE] = structure
    return {**flat, **own}
