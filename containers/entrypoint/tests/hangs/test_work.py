"""Which workers compute: the counters of a fake machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from entrypoint_support.machine import TICKS, Machine

from smdp_entrypoint.hangs.work import Work


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sysconf", lambda name: TICKS)
    return Machine(tmp_path)


def test_worker_computes_if_it_or_a_process_that_it_started_uses_the_processor(machine: Machine) -> None:
    work = Work(machine.files)
    for pid in (10, 20, 30):
        machine.process(pid, 1, pid, 3.0)
    machine.process(11, 10, 10, 1.0)
    work.watch([10, 20, 30], 100.0)
    assert all(map(work.is_busy, (10, 20, 30)))  # not measured yet
    machine.process(11, 10, 10, 1.5)
    machine.process(20, 1, 20, 3.0, 0.5)
    machine.process(30, 1, 30, 3.05)  # a hundredth of a core
    work.watch([10, 20, 30], 102.0)
    assert work.is_busy(30)  # the interval has not ended
    work.watch([10, 20, 30], 105.0)
    assert [work.is_busy(pid) for pid in (10, 20, 30)] == [True, True, False]


def test_only_the_last_interval_counts(machine: Machine) -> None:
    work = Work(machine.files)
    for now, seconds in ((100.0, 1.0), (105.0, 6.0), (110.0, 6.0)):
        machine.process(10, 1, 10, seconds)
        work.watch([10], now)
    assert not work.is_busy(10)
    work.watch([], 111.0)
    work.watch([10], 900.0)
    assert work.is_busy(10)
