"""A rank of a job with an injected fault: its actions in each state, and the resources left after the failure."""

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

from fault_injection import faults
from fault_injection.faults import Fault

ROUNDS = 400  # the maximum of large calls; the fault comes in one of the first


class ScriptEnded(Exception):
    """The script ends before the other ranks' scripts."""


class Injector:
    """Controls the fault injector in this process."""

    def __init__(self, fault: Fault, me: int, record: int) -> None:
        self._calls = ctypes.CDLL(None)
        self._fault = fault
        self._kind = faults.KINDS[fault.kind]
        self.is_victim = fault.victim == me
        self._calls.fault_share(ctypes.c_void_p(record))

    def arm(self) -> None:
        """Inject the fault at its point, if this is the victim and the fault has a point."""
        fault = self._fault
        if self.is_victim and fault.point:
            timing = faults.TIMINGS[fault.timing]
            self._calls.fault_arm(faults.POINTS[fault.point], fault.call, timing, self._kind)

    def disarm(self) -> None:
        self._calls.fault_disarm()

    def at(self, line: str, number: int = 0) -> None:
        """Inject the fault now if it names this line of the script. Raises ScriptEnded for the kind "leave"."""
        fault = self._fault
        if self.is_victim and fault.line == line and (line != "round" or fault.call == number):
            time.sleep(fault.after_us / 1e6)
            self._calls.fault_inject(self._kind)
            if fault.kind == "leave":
                raise ScriptEnded

    def soon(self) -> None:
        """Inject the fault after its delay, if it names neither a point nor a line."""
        if self.is_victim and not self._fault.point and not self._fault.line:
            self._calls.fault_inject_later(ctypes.c_long(self._fault.after_us), self._kind)


@dataclass(frozen=True)
class Resources:
    """The kernel resources of this process."""

    descriptors: frozenset[str]
    threads: int
    arenas: int

    @staticmethod
    def now() -> Resources:
        descriptors = set()
        for entry in Path("/proc/self/fd").iterdir():
            try:
                descriptors.add(f"{entry.name} {entry.readlink()}")
            except OSError:
                continue  # the descriptor of the folder itself
        threads = len(list(Path("/proc/self/task").iterdir()))
        return Resources(
            frozenset(descriptors), threads, len(re.findall("memfd:smdp", Path("/proc/self/maps").read_text()))
        )

    def leaked_since(self, before: Resources) -> list[str]:
        leaked = sorted(self.descriptors - before.descriptors)
        leaked += [f"{self.threads - before.threads} threads"] if self.threads > before.threads else []
        return leaked + ([f"{self.arenas} arenas"] if self.arenas else [])


def options(fault: Fault, me: int, port: int) -> dict[str, str]:
    return {
        **c_interface.options_of(f"algo-{fault.hosts[me] + 1}", port),
        "SMDP_INTERFACE": "eth0",
        "SMDP_RENDEZVOUS_TIMEOUT_S": str(faults.RENDEZVOUS_S if fault.opening else faults.OPEN_S),
        "SMDP_HEARTBEAT_S": str(faults.HEARTBEAT_S),
        "SMDP_CLOSE_TIMEOUT_S": str(faults.CLOSE_S),
        "SMDP_WARN_S": "0.3",
        "SMDP_REFUSAL_GRACE_S": "0.3",
        "SMDP_PIECE_KIB": str(fault.piece_kib),
    }


class RankScript:
    def __init__(self, fault: Fault, me: int, injector: Injector) -> None:
        self._fault = fault
        self._injector = injector
        self._me = me
        self._members = list(range(len(fault.hosts)))
        self._timeout_s = faults.SILENT_OPERATION_S if fault.is_silent_link else faults.OPERATION_S
        self._engine: c_interface.Engine | None = None

    def execute(self, library: c_interface.Library, port: int, master: str) -> None:
        """Run the rank. Raises EngineError if the fault affects it."""
        if self._fault.opening:
            self._injector.arm()
        config = options(self._fault, self._me, port)
        self._engine = c_interface.Engine(library, self._me, len(self._members), config, master)
        self._injector.disarm()
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
        self._injector.at("before")
        group = self._group("work")
        self._injector.at("between")
        self._sum(group, 1000)
        self._injector.at("behind")
        last = self._group("last")
        for _ in range(3):  # data in flight may complete the first one
            self._sum(last, 1000)

    def _exchange(self) -> None:
        group = self._group("work")
        self._sum(group, 1000)
        self._injector.at("before")
        self._injector.arm()
        self._injector.soon()
        for number in range(2 if self._fault.opening else ROUNDS):
            self._injector.at("round", number)
            self._sum(group, self._fault.count)

    def _destroy(self) -> None:
        assert self._engine is not None
        work, last = self._group("work"), self._group("last")
        self._sum(work, 1000)
        self._injector.at("before")
        self._injector.arm()
        self._engine.destroy(work)
        self._injector.at("between")
        if self._injector.is_victim:
            self.close()
            self._injector.at("behind")
        else:
            for _ in range(3):
                self._sum(last, 1000)


def run_rank(
    fault: Fault, me: int, record: int, library: c_interface.Library, port: int, master: str
) -> dict[str, Any]:
    """The outcome: ``raised`` (a message or None) and its time, and the resources ``leaked`` after closing."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    injector = Injector(fault, me, record)
    script = RankScript(fault, me, injector)
    before = Resources.now()
    time.sleep(fault.late_ms[me] / 1000)
    outcome: dict[str, Any] = {"rank": me, "raised": None}
    try:
        script.execute(library, port, master)
    except c_interface.EngineError as error:
        outcome["raised"] = str(error)
    except ScriptEnded:
        pass
    except AssertionError as error:
        outcome["wrong"] = str(error)
    outcome["at_ns"] = time.monotonic_ns()
    script.close()
    outcome["closing_s"] = (time.monotonic_ns() - outcome["at_ns"]) / 1e9
    outcome["leaked"] = Resources.now().leaked_since(before)
    return outcome
