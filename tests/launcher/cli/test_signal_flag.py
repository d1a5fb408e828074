"""The flag that signal handlers set."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from smdp_launch.signals.flag import SignalFlag

# Each signal interrupts the main thread at another statement: a lock could deadlock there, or a wake-up be lost.
_PROGRAM = """
import random, signal
from smdp_launch.signals.flag import SignalFlag

flag, signals, wakeups = SignalFlag(), 0, 0

def handle(*_):
    global signals
    signals += 1
    flag.set()

signal.signal(signal.SIGALRM, handle)
for _ in range(20_000):
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
    wakeups += flag.wait(1e-4)
    flag.clear()
signal.setitimer(signal.ITIMER_REAL, 0.01)
print(flag.wait(60), signals > 1_000, wakeups > 1_000)
"""


def test_signal_at_any_time_is_not_lost() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], check=False, capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("True True True\n", "", 0)


def test_set_wakes_all_waiting_threads() -> None:
    flag, woken = SignalFlag(), []
    threads = [threading.Thread(target=lambda: woken.append(flag.wait(60))) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join(60)
    assert woken == [True, True, True]


def test_cleared_flag_wakes_no_thread() -> None:
    flag = SignalFlag()
    flag.set()
    assert flag.wait(60)
    assert flag.is_set()
    flag.clear()
    began = time.monotonic()
    assert not flag.wait(0.05)
    assert time.monotonic() - began >= 0.05
