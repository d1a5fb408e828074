"""How the ranks learn that a checkpoint is complete, while their training threads use the process group.

A thread must not call collectives beside the training, so the ranks use the store of the process group. Each rank
puts there what it has written, or its error. Rank 0 waits for all of them, commits, and puts the outcome there. Each
wait has a deadline: if a rank dies, rank 0 commits nothing.
"""

import pickle
import time
from typing import Any, Callable, Dict, List, Optional

from .ranks import default_store

_SHORTEST_POLL, _LONGEST_POLL = 0.002, 0.1  # seconds
#: Seconds that rank 0, whose process may own the store, waits at most for the other ranks to read the outcome.
_LAST_READ = 10.0

Part = Dict[str, Any]
Outcome = Dict[str, Any]


class Agreement:
    """The ranks' agreement on one save.

    Args:
        name: of this save, the same on all ranks, and used once in the job: all its groups share one store.
        deadline: by `time.monotonic`.

    The process group must exist. It may be destroyed before `reach`, which uses its store.
    """

    def __init__(self, name: str, rank: int, world_size: int, deadline: float) -> None:
        self._name, self._rank, self._world_size, self._deadline = name, rank, world_size, deadline
        self._store: Any = default_store() if world_size > 1 else None

    def reach(self, part: Part, commit: Callable[[List[Part]], Outcome]) -> Outcome:
        """The outcome of this save, the same on all ranks: what ``commit`` returned on rank 0, or ``{"error": ...}``.

        ``part`` is this rank's, with ``error`` if it has failed. ``commit`` gets the parts of all ranks. The outcome
        has ``unknown`` if this rank has lost the others, so the checkpoint may be complete, and on rank 0 if they have
        not read it.
        """
        if self._store is None:
            return self._decide([part], commit)
        try:
            return self._lead(part, commit) if self._rank == 0 else self._follow(part)
        except Exception as error:  # of the store, whose process may have exited
            return {"error": f"rank {self._rank} lost the connection to the other ranks: {error}", "unknown": True}

    def _decide(self, parts: List[Part], commit: Callable[[List[Part]], Outcome]) -> Outcome:
        errors = [f"rank {rank}: {part['error']}" for rank, part in enumerate(parts) if part.get("error")]
        if errors:
            return {"error": "; ".join(errors[:3]) + (f"; and {len(errors) - 3} more ranks" if errors[3:] else "")}
        try:
            return commit(parts)
        except Exception as error:
            return {"error": f"rank 0: {type(error).__name__}: {error}"}

    def _lead(self, part: Part, commit: Callable[[List[Part]], Outcome]) -> Outcome:
        keys = [self._key(f"part/{rank}") for rank in range(1, self._world_size)]
        if self._wait(lambda: bool(self._store.check(keys)), self._deadline):
            outcome = self._decide([part, *(pickle.loads(self._store.get(key)) for key in keys)], commit)  # noqa: S301
        else:
            late = [rank for rank, key in enumerate(keys, 1) if not self._store.check([key])]
            outcome = {"error": f"rank {late[0] if late else 0} did not write its part before the deadline"}
        self._store.set(self._key("outcome"), pickle.dumps(outcome))
        read = self._key("read")
        until = time.monotonic() + _LAST_READ
        if not self._wait(lambda: self._store.add(read, 0) >= self._world_size - 1, until):
            return {**outcome, "unknown": True}
        for key in (*keys, self._key("outcome"), read):
            self._store.delete_key(key)
        return outcome

    def _follow(self, part: Part) -> Outcome:
        self._store.set(self._key(f"part/{self._rank}"), pickle.dumps(part))
        key = self._key("outcome")
        # Rank 0 decides at the deadline; this rank has to wait longer than that, to get its decision.
        if not self._wait(lambda: bool(self._store.check([key])), self._deadline + _LAST_READ):
            return {"error": "rank 0 did not complete the checkpoint before the deadline", "unknown": True}
        outcome: Outcome = pickle.loads(self._store.get(key))  # noqa: S301 (of a rank of this job)
        self._store.add(self._key("read"), 1)
        return outcome

    def _key(self, name: str) -> str:
        return f"smdp_checkpoint/{self._name}/{name}"

    @staticmethod
    def _wait(condition: Callable[[], bool], deadline: float) -> bool:
        pause = _SHORTEST_POLL
        while not condition():
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL)
        return True


def error_of(outcome: Outcome) -> Optional[str]:
    error = outcome.get("error")
    return str(error) if error else None
