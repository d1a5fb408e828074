"""The flag that handlers of signals set."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from smdp_launch.signal_flag import SignalFlag

# Each signal hits the main thread at another place of the flag's code: a lock there would be held, or a wake-up lost.
_STRUCK = """
import random, signal
from smdp_launch.signal_flag import SignalFlag

flag, struck, seen = SignalFlag(), 0, 0

def strike(*_):
    global struck
    struck += 1
    flag.set()

signal.signal(signal.SIGALRM, strike)
for _ in range(20_000):
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
    seen += flag.wait(1e-4)
    flag.clear()
signal.setitimer(signal.ITIMER_REAL, 0.01)
print(flag.wait(60), struck > 1_000, seen > 1_000)
"""


def test_a_signal_may_come_anywhere() -> None:
    done = subprocess.run([sys.executable, "-c", _STRUCK], check=False, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("True True True\n", "", 0)


def test_it_wakes_all_that_wait() -> None:
    flag, woken = SignalFlag(), []
    threads = [threading.Thread(target=lambda: woken.append(flag.wait(60))) for _ in range(3)]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join(60)
    assert woken == [True, True, True]


def test_what_was_set_before_it_was_cleared_wakes_nobody() -> None:
    flag = SignalFlag()
    flag.set()
    assert flag.wait(60)
    assert flag.is_set()
    flag.clear()
    began = time.monotonic()
    assert not flag.wait(0.05)
    assert time.monotonic() - began >= 0.05
