"""The time of the training thread, divided among phases: the thread is in exactly one phase at any moment.

At the bottom is the base phase, which lasts from one event of the loop to the next: FORWARD from a delivered batch
to the backward pass, EVALUATION if gradients are off, else OTHER. Above it stand the calls that the thread is in:

    clock.enter(INPUT) -> a mark       the loader's next()
    clock.leave(mark, FORWARD)         a batch: the base phase is now FORWARD
    clock.enter(BACKWARD) ...          the phase below does not count while another is above it

One thread, the training thread, writes. A call in any other thread changes no phase. Any thread may read, without a
lock: the current phase, its beginning and its total before are one tuple, which is replaced as a whole, and while it
is in place no total of another phase changes. A reader waits while a change is in progress.

The native clock (native/clock) has the same methods and counts the same.
"""

import functools
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar, cast

from ..phases import PHASES
from .native import MODULE

INPUT, COPY, FORWARD, BACKWARD, EXCHANGE, OPTIMIZER, CHECKPOINT, LOGGING, EVALUATION, OTHER = range(10)
#: What ``enter`` returns in a thread that is not measured, and ``leave`` ignores.
NOT_MEASURED = 0

_Function = TypeVar("_Function", bound=Callable[..., Any])
_now = time.perf_counter_ns
_thread = threading.get_ident
_READS, _PAUSE_S = 100, 0.0001  # attempts to read while the training thread changes its phase


class Snapshot(NamedTuple):
    """Totals since the start of the clock. ``phases``: nanoseconds, in the order of PHASES; they sum to the age of the
    clock. ``steps``: the number of steps of each optimizer. ``moves``: nanoseconds in the first phase that belong to
    the second."""

    phases: Tuple[int, ...]
    batches: int
    samples: int
    checkpoints: int
    steps: Dict[int, int]
    moves: Dict[Tuple[int, int], int]


class Clock:
    """Created in the training thread, in phase OTHER."""

    def __init__(self) -> None:
        #: The training thread's identifier; None in a forked child, which measures nothing.
        self.owner: Optional[int] = _thread()
        self.batches = 0
        self.checkpoints = 0
        self._samples = 0
        self._delivered_samples = 0
        self._steps: Dict[int, int] = {}
        self._has_trained = False
        self._moves: Dict[Tuple[int, int], int] = {}
        #: The number of backward passes.
        self.passes = 0
        #: Worker processes of the training loader; -1 before its first batch.
        self.workers = -1
        #: The iterator that has delivered the last batch (torch_loaders.Source).
        self.last: Any = None
        #: Samples of an iterator's last batches, at its end.
        self.left = 0
        self._totals = [0] * len(PHASES)
        self._stack: List[int] = [OTHER]
        self._state = (OTHER, _now(), 0)  # phase, its beginning, its total before
        self._is_changing = False

    @property
    def phase(self) -> int:
        return self._state[0]

    @property
    def is_at_base(self) -> bool:
        """Whether the training thread is in no call that ``enter`` began."""
        return len(self._stack) == 1

    @property
    def is_own_thread(self) -> bool:
        return _thread() == self.owner

    @property
    def is_used(self) -> bool:
        """Whether the process trains: it has loaded a batch, begun a backward pass, or made a step or a save."""
        return bool(self.batches or self._steps or self.checkpoints or self._has_trained)

    def enter(self, phase: int) -> int:
        """Begin a call of this phase. Returns the mark for ``leave``."""
        if _thread() != self.owner:
            return NOT_MEASURED
        stack = self._stack
        mark = len(stack)
        stack.append(phase)
        self._switch(phase)
        return mark

    def leave(self, mark: int, base: Optional[int] = None) -> None:
        """End the call that began at the mark, and all calls above it that an exception has ended. ``base``: the base
        phase from here on, None for no change."""
        if mark == NOT_MEASURED:
            return
        stack = self._stack
        del stack[mark:]
        if base is not None:
            stack[0] = base
        self._switch(stack[-1])

    def rest(self, base: int) -> None:
        """Change the base phase."""
        if _thread() != self.owner:
            return
        self._stack[0] = base
        if len(self._stack) == 1:
            self._switch(base)

    def turn(self, phase: int, into: int) -> None:
        """The call above all others is from here on of another phase, if it is of ``phase`` now.

        For callbacks that another thread may run while the training thread waits for it in that call.
        """
        if self._state[0] == phase and self.owner is not None:
            self._stack[-1] = into
            self._switch(into)

    def gradients_are_ready(self) -> None:
        """In the backward pass: from here on it waits for the exchange of the gradients."""
        self.turn(BACKWARD, EXCHANGE)

    def is_within(self, phase: int) -> bool:
        """Whether the training thread is in a call of this phase."""
        return phase in self._stack[1:]

    def end_calls(self, phase: int) -> None:
        """End a call of this phase, and those above it, that an exception has ended without ``leave``."""
        if _thread() == self.owner and phase in self._stack[1:]:
            self.leave(self._stack.index(phase, 1))

    def adopt(self) -> None:
        """Make this thread the training thread, if no other has trained: the thread of the first backward pass."""
        if self.owner is not None and not self._has_trained and _thread() != self.owner:
            self.owner = _thread()
            self._stack = [OTHER]
            self._switch(OTHER)

    def deliver(self, samples: int) -> None:
        """Count a batch; its samples (0: unknown) count as soon as a backward pass uses them."""
        self.batches += 1
        self._delivered_samples += samples

    def deliver_unloaded(self, samples: int) -> None:
        """As ``deliver``, for data that no loader delivers: it is no batch, and its samples count if no others wait."""
        self._delivered_samples = self._delivered_samples or samples

    def use_samples(self) -> None:
        """A backward pass trains on the samples of the delivered batches."""
        self._has_trained = True
        self.passes += 1
        self._samples += self._delivered_samples
        self._delivered_samples = 0

    def wait_with(self, samples: int) -> None:
        """So many more samples of delivered batches wait for a backward pass."""
        self._delivered_samples += samples

    @property
    def has_waiting_samples(self) -> bool:
        return self._delivered_samples > 0

    def drop_samples(self, samples: Optional[int] = None) -> None:
        """So many samples of the delivered batches, or all, were for evaluation."""
        self._delivered_samples = max(0, self._delivered_samples - samples) if samples is not None else 0

    def move(self, source: int, target: int, nanoseconds: int) -> None:
        """Count this time, which the training thread has spent in the phase ``source``, in ``target`` instead."""
        if nanoseconds > 0:
            self._moves[source, target] = self._moves.get((source, target), 0) + nanoseconds

    def total(self, phase: int) -> int:
        """In the training thread: nanoseconds in this phase until now."""
        now_in, since, before = self._state
        return before + _now() - since if now_in == phase else self._totals[phase]

    def count_step(self, optimizer: int) -> None:
        """Count a step of the optimizer with this identity."""
        self._steps[optimizer] = self._steps.get(optimizer, 0) + 1

    def stop(self) -> None:
        """In a forked child: measure nothing from here on."""
        self.owner = None

    def read(self) -> Snapshot:
        """From any thread."""
        for _ in range(_READS):
            state = self._state
            totals = list(self._totals)
            now = _now()
            if state is self._state and not self._is_changing:
                break
            time.sleep(_PAUSE_S)
        phase, since, before = state
        totals[phase] = before + now - since
        counts = self.batches, self._samples, self.checkpoints
        return Snapshot(tuple(totals), *counts, dict(self._steps), dict(self._moves))

    def _switch(self, phase: int) -> None:
        self._is_changing = True
        now = _now()
        old, since, before = self._state
        totals = self._totals
        totals[old] = before + now - since
        self._state = (phase, now, totals[phase])
        self._is_changing = False


if MODULE is not None:

    class NativeClock(MODULE.Clock):  # type: ignore[misc, name-defined]
        """As Clock, in native code."""

        __slots__ = ()

        def read(self) -> Snapshot:
            return Snapshot(*self.totals())


def new_clock() -> Clock:
    """A clock of this thread, in phase OTHER: the native one if it is there."""
    return Clock() if MODULE is None else cast(Clock, NativeClock())


def measured(clock: Clock, phase: int, function: _Function, *others: int) -> Any:
    """The function, with its calls in this phase; a call within one of the same phase, or of the others, is part of
    that one."""
    phases = (phase, *others)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if clock.phase in phases:
            return function(*args, **kwargs)
        mark = clock.enter(phase)
        try:
            return function(*args, **kwargs)
        finally:
            clock.leave(mark)

    return wrapper


def measured_saves(clock: Clock, function: _Function) -> Any:
    """The function, which saves a checkpoint, with its calls in the phase CHECKPOINT and counted once each."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not clock.is_own_thread or clock.is_within(CHECKPOINT):
            return function(*args, **kwargs)
        mark = clock.enter(CHECKPOINT)
        try:
            return function(*args, **kwargs)
        finally:
            clock.leave(mark)
            clock.checkpoints += 1

    return wrapper
