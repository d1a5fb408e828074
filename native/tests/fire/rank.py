"""A rank of a job under fire: what it does in each state, and what it leaves behind when it has failed."""

from __future__ import annotations

import ctypes
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import c_interface
import numpy as np

from fire import faults
from fire.faults import Fault

ROUNDS = 400  # large calls until the strike; it comes with one of the first


class Left(Exception):
    """The script is over before the others' scripts are."""


class Striker:
    """This process's side of strike.cc."""

    def __init__(self, fault: Fault, me: int, record: int) -> None:
        self._calls = ctypes.CDLL(None)
        self._fault = fault
        self._kind = faults.KINDS[fault.kind]
        self.is_victim = fault.victim == me
        self._calls.strike_share(ctypes.c_void_p(record))

    def arm(self) -> None:
        """At the fault's point, if this is the victim and it has one."""
        fault = self._fault
        if self.is_victim and fault.point:
            manner = faults.MANNERS[fault.manner]
            self._calls.strike_arm(faults.POINTS[fault.point], fault.call, manner, self._kind)

    def disarm(self) -> None:
        self._calls.strike_disarm()

    def at(self, line: str, number: int = 0) -> None:
        """Here, if the fault names this line of the script; raises Left where the script ends with it."""
        fault = self._fault
        if self.is_victim and fault.line == line and (line != "round" or fault.call == number):
            time.sleep(fault.after_us / 1e6)
            self._calls.strike_now(self._kind)
            if fault.kind == "leave":
                raise Left

    def soon(self) -> None:
        """So long after now as the fault says, if it names neither a point nor a line."""
        if self.is_victim and not self._fault.point and not self._fault.line:
            self._calls.strike_in(ctypes.c_long(self._fault.after_us), self._kind)


@dataclass(frozen=True)
class Holdings:
    """What the process has of the kernel."""

    descriptors: frozenset[str]
    threads: int
    arenas: int

    @staticmethod
    def now() -> Holdings:
        found = set()
        for entry in Path("/proc/self/fd").iterdir():
            try:
                found.add(f"{entry.name} {entry.readlink()}")
            except OSError:
                continue  # the folder's own
        threads = len(list(Path("/proc/self/task").iterdir()))
        return Holdings(frozenset(found), threads, len(re.findall("memfd:smdp", Path("/proc/self/maps").read_text())))

    def left_since(self, before: Holdings) -> list[str]:
        left = sorted(self.descriptors - before.descriptors)
        left += [f"{self.threads - before.threads} threads"] if self.threads > before.threads else []
        return left + ([f"{self.arenas} arenas"] if self.arenas else [])


def options(fault: Fault, me: int, port: int) -> dict[str, str]:
    return {
        **c_interface.options_of(f"algo-{fault.hosts[me] + 1}", port),
        "SMDP_INTERFACE": "eth0",
        "SMDP_RENDEZVOUS_TIMEOUT_S": str(faults.RENDEZVOUS_S),
        "SMDP_HEARTBEAT_S": str(faults.HEARTBEAT_S),
        "SMDP_CLOSE_TIMEOUT_S": str(faults.CLOSE_S),
        "SMDP_WARN_S": "0.3",
        "SMDP_REFUSAL_GRACE_S": "0.3",
        "SMDP_PIECE_KIB": str(fault.piece_kib),
    }


class Life:
    def __init__(self, fault: Fault, me: int, striker: Striker) -> None:
        self._fault = fault
        self._striker = striker
        self._me = me
        self._members = list(range(len(fault.hosts)))
        # A lost link is the heartbeat's to find, and not the deadline's.
        self._timeout_s = 4 * faults.OPERATION_S if fault.is_silent_link else faults.OPERATION_S
        self._engine: c_interface.Engine | None = None

    def play(self, library: c_interface.Library, port: int, master: str) -> None:
        """Raises EngineError, as a rank under fire does; returns when nothing went wrong."""
        if self._fault.opening:
            self._striker.arm()
        config = options(self._fault, self._me, port)
        self._engine = c_interface.Engine(library, self._me, len(self._members), config, master)
        self._striker.disarm()
        if self._fault.state == "group creation":
            self._create()
        elif self._fault.state == "destroy":
            self._destroy()
        else:
            self._exchange()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _group(self, name: str) -> ctypes.c_void_p:
        assert self._engine is not None
        return self._engine.group(self._members, name, self._timeout_s)

    def _sum(self, group: ctypes.c_void_p, count: int) -> None:
        assert self._engine is not None
        result = self._engine.all_reduce(group, np.full(count, self._me + 1, np.float32), "float32", "sum")
        size = len(self._members)
        assert (result == size * (size + 1) / 2).all(), "a sum is wrong"

    def _create(self) -> None:
        self._sum(self._group("first"), 1000)
        self._striker.at("before")
        group = self._group("work")
        self._striker.at("between")
        self._sum(group, 1000)
        self._striker.at("behind")
        last = self._group("last")
        for _ in range(3):  # what was on its way when a link went may complete the first
            self._sum(last, 1000)

    def _exchange(self) -> None:
        group = self._group("work")
        self._sum(group, 1000)
        self._striker.at("before")
        self._striker.arm()
        self._striker.soon()
        for number in range(2 if self._fault.opening else ROUNDS):
            self._striker.at("round", number)
            self._sum(group, self._fault.count)

    def _destroy(self) -> None:
        assert self._engine is not None
        work, last = self._group("work"), self._group("last")
        self._sum(work, 1000)
        self._striker.at("before")
        self._striker.arm()
        self._engine.destroy(work)
        self._striker.at("between")
        if self._striker.is_victim:
            self.close()
            self._striker.at("behind")
        else:
            for _ in range(3):
                self._sum(last, 1000)


def live(fault: Fault, me: int, record: int, library: c_interface.Library, port: int, master: str) -> dict[str, Any]:
    """What happened: ``raised`` (a message or None) and when, and what was left after closing."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    striker = Striker(fault, me, record)
    life = Life(fault, me, striker)
    before = Holdings.now()
    time.sleep(fault.late_ms[me] / 1000)
    outcome: dict[str, Any] = {"rank": me, "raised": None}
    try:
        life.play(library, port, master)
    except c_interface.EngineError as error:
        outcome["raised"] = str(error)
    except Left:
        pass
    except AssertionError as error:
        outcome["wrong"] = str(error)
    outcome["at_ns"] = time.monotonic_ns()
    life.close()
    outcome["closing_s"] = (time.monotonic_ns() - outcome["at_ns"]) / 1e9
    outcome["left"] = Holdings.now().left_since(before)
    return outcome
