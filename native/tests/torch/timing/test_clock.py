"""The clock: every moment belongs to exactly one phase, whatever is called, raised or read meanwhile."""

import os
import random
import sys
import threading
import time
from typing import Any, Dict, List, Tuple

import pytest

from smdp_engine.timing import clock as clocks
from smdp_engine.timing.clock import (
    BACKWARD,
    CHECKPOINT,
    EXCHANGE,
    FORWARD,
    INPUT,
    LOGGING,
    NOT_MEASURED,
    OPTIMIZER,
    OTHER,
    PHASES,
    Clock,
    measured,
    measured_saves,
)


@pytest.fixture(autouse=True, params=["python", "native"])
def _each_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs every test with the clock in Python and with the native one."""
    if request.param == "native":
        if clocks.MODULE is None:
            pytest.skip("the engine was built without Python's headers")
        monkeypatch.setattr(sys.modules[__name__], "Clock", clocks.NativeClock)


def spend(seconds: float = 0.002) -> None:
    time.sleep(seconds)


def test_phases_sum_to_the_age_of_the_clock() -> None:
    before = time.perf_counter_ns()
    clock = Clock()
    created = time.perf_counter_ns()
    for phase in range(len(PHASES)):
        mark = clock.enter(phase)
        clock.leave(mark, FORWARD)
    start = time.perf_counter_ns()
    snapshot = clock.read()
    end = time.perf_counter_ns()
    assert start - created <= sum(snapshot.phases) <= end - before


def test_time_of_an_inner_call_does_not_count_for_the_outer_one() -> None:
    clock = Clock()
    outer = clock.enter(BACKWARD)
    inner = clock.enter(EXCHANGE)
    begin = time.perf_counter_ns()
    spend()
    slept = time.perf_counter_ns() - begin
    clock.leave(inner)
    clock.leave(outer, OTHER)
    phases = clock.read().phases
    assert phases[EXCHANGE] >= slept
    assert phases[BACKWARD] + phases[OTHER] == sum(phases) - phases[EXCHANGE]


def test_base_phase_lasts_until_the_next_one() -> None:
    clock = Clock()
    clock.leave(clock.enter(INPUT), FORWARD)
    assert clock.phase == FORWARD
    mark = clock.enter(LOGGING)
    clock.rest(OTHER)
    assert clock.phase == LOGGING
    clock.leave(mark)
    assert clock.phase == OTHER


def test_leave_ends_the_calls_above_that_an_exception_has_ended() -> None:
    clock = Clock()
    mark = clock.enter(BACKWARD)
    clock.enter(OPTIMIZER)
    clock.enter(LOGGING)
    clock.leave(mark)
    assert clock.phase == OTHER
    clock.enter(OPTIMIZER)
    clock.end_calls(OPTIMIZER)
    assert clock.phase == OTHER


def test_other_threads_change_no_phase() -> None:
    clock = Clock()
    marks: List[int] = []

    def run() -> None:
        marks.append(clock.enter(INPUT))
        clock.leave(marks[0], FORWARD)
        clock.rest(FORWARD)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert marks == [NOT_MEASURED]
    assert clock.phase == OTHER
    assert clock.read().phases[INPUT] == 0


def test_thread_of_the_first_backward_pass_becomes_the_training_thread() -> None:
    clock = Clock()
    in_phase: List[int] = []

    def train() -> None:
        clock.adopt()
        clock.use_samples()
        clock.enter(BACKWARD)
        in_phase.append(clock.phase)

    for _ in range(2):  # the second thread is not the first to train
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert in_phase == [BACKWARD, BACKWARD]
    assert clock.enter(INPUT) == NOT_MEASURED


def test_a_reader_in_another_thread_never_sees_time_twice_or_backwards() -> None:
    clock = Clock()
    ended = threading.Event()
    snapshots: List[Any] = []

    def read() -> None:
        while not ended.is_set():
            earliest = time.perf_counter_ns()
            snapshots.append((earliest, clock.read(), time.perf_counter_ns()))

    born = time.perf_counter_ns() - sum(clock.read().phases)
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20_000):
        clock.leave(clock.enter(INPUT), FORWARD)
        clock.leave(clock.enter(BACKWARD), OTHER)
    ended.set()
    reader.join()
    previous = [0] * len(PHASES)
    slack = 1_000_000  # between the clock's creation and `born`
    for earliest, snapshot, latest in snapshots:
        assert earliest - born - slack <= sum(snapshot.phases) <= latest - born + slack
        assert all(new >= old for new, old in zip(snapshot.phases, previous))
        previous = snapshot.phases


def test_a_callback_turns_the_phase_only_of_the_call_it_belongs_to() -> None:
    clock = Clock()
    clock.turn(BACKWARD, EXCHANGE)
    assert clock.phase == OTHER
    mark = clock.enter(BACKWARD)
    clock.turn(BACKWARD, EXCHANGE)
    assert clock.phase == EXCHANGE
    clock.gradients_are_ready()
    assert clock.phase == EXCHANGE
    clock.leave(mark)
    clock.gradients_are_ready()
    assert clock.phase == OTHER
    mark = clock.enter(BACKWARD)
    clock.gradients_are_ready()
    assert clock.phase == EXCHANGE
    clock.leave(mark)


def test_forked_child_measures_nothing() -> None:
    clock = Clock()
    clock.stop()
    clock.leave(clock.enter(INPUT), FORWARD)
    clock.turn(OTHER, EXCHANGE)
    clock.adopt()
    assert clock.phase == OTHER
    assert not clock.is_own_thread


def test_steps_are_counted_for_each_optimizer() -> None:
    clock = Clock()
    for optimizer in (1, 2, 2):
        clock.count_step(optimizer)
    assert clock.read().steps == {1: 1, 2: 2}


def test_samples_count_when_a_backward_pass_uses_them() -> None:
    clock = Clock()
    clock.deliver(4)
    assert clock.read()[1:3] == (1, 0)
    clock.use_samples()
    assert clock.read()[1:3] == (1, 4)
    clock.deliver(8)
    clock.drop_samples()
    clock.use_samples()
    assert clock.read()[1:3] == (2, 4)


def test_time_moves_to_the_phase_that_it_belongs_to() -> None:
    clock = Clock()
    clock.leave(clock.enter(INPUT), FORWARD)
    spend()
    clock.move(FORWARD, INPUT, 1000)
    clock.move(FORWARD, INPUT, 500)
    clock.move(FORWARD, OTHER, -1)  # no time
    assert clock.read().moves == {(FORWARD, INPUT): 1500}
    assert clock.total(FORWARD) >= 2_000_000
    clock.rest(OTHER)
    assert clock.total(FORWARD) == clock.read().phases[FORWARD]


def test_call_within_one_of_other_phases_is_part_of_it() -> None:
    clock = Clock()
    seen: List[int] = []
    exchange = measured(clock, EXCHANGE, lambda: seen.append(clock.phase), INPUT)
    exchange()
    mark = clock.enter(INPUT)
    exchange()
    clock.leave(mark)
    assert seen == [EXCHANGE, INPUT]


def test_measured_function_keeps_its_name_result_and_exception() -> None:
    clock = Clock()

    def save(value: int) -> int:
        """Saves."""
        assert clock.phase == CHECKPOINT
        return 1 // value

    wrapped = measured_saves(clock, save)
    assert (wrapped.__name__, wrapped.__doc__, wrapped(1)) == ("save", "Saves.", 1)
    with pytest.raises(ZeroDivisionError):
        wrapped(0)
    assert clock.phase == OTHER
    outer = measured_saves(clock, lambda: wrapped(1))
    outer()
    assert clock.checkpoints == 3  # the inner save of the last one is a part of it
    assert measured(clock, LOGGING, os.getpid)() == os.getpid()


def test_every_order_of_calls_gives_the_same_counts_and_phases_as_the_clock_in_python() -> None:
    calls: Dict[str, Any] = {
        "enter": lambda draw: (draw.randrange(len(PHASES)),),
        "leave": lambda draw: (draw.randrange(4), draw.choice([None, FORWARD, OTHER])),
        "rest": lambda draw: (draw.randrange(len(PHASES)),),
        "turn": lambda draw: (draw.choice([BACKWARD, FORWARD]), EXCHANGE),
        "gradients_are_ready": lambda _: (),
        "is_within": lambda draw: (draw.randrange(len(PHASES)),),
        "end_calls": lambda draw: (draw.randrange(len(PHASES)),),
        "adopt": lambda _: (),
        "deliver": lambda draw: (draw.randrange(9),),
        "deliver_unloaded": lambda draw: (draw.randrange(9),),
        "use_samples": lambda _: (),
        "wait_with": lambda draw: (draw.randrange(9),),
        "drop_samples": lambda draw: draw.choice([(), (draw.randrange(9),)]),
        "move": lambda draw: (draw.randrange(3), draw.randrange(3), draw.randrange(-1, 5)),
        "count_step": lambda draw: (draw.randrange(3) << 62,),
    }
    attributes = (
        "phase",
        "batches",
        "passes",
        "owner",
        "is_at_base",
        "is_own_thread",
        "is_used",
        "has_waiting_samples",
    )

    def state(clock: Any) -> Tuple[Any, ...]:
        return (*(getattr(clock, name) for name in attributes), *clock.read()[1:])

    for seed in range(50):
        draw = random.Random(seed)
        one, other = clocks.Clock(), Clock()
        for _ in range(60):
            name = draw.choice(list(calls))
            arguments = calls[name](draw)
            if name == "leave" and arguments[0] >= len(one._stack):
                continue  # a mark that no ``enter`` has returned
            assert getattr(one, name)(*arguments) == getattr(other, name)(*arguments), (seed, name, arguments)
            assert state(one) == state(other), (seed, name, arguments)


def test_unknown_phase_is_refused_and_changes_nothing() -> None:
    clock = Clock()
    for call in (lambda: clock.enter(-1), lambda: clock.enter(99), lambda: clock.total(99)):
        if isinstance(clock, clocks.Clock):
            break  # the one in Python does not check: no other code calls it
        with pytest.raises(ValueError, match="phase"):
            call()
    assert clock.phase == OTHER and clock.is_at_base
