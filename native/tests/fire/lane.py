"""A lane: two hosts (network namespaces) in which one job after the other comes under fire. Needs root."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import selectors
import signal
import subprocess
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import c_interface
from lab import Lab
from ports import free_port

from fire import rank as life
from fire.faults import DEADLY, LAYOUTS, Fault
from fire.judge import Verdict, judge
from fire.record import Record

HANG_S = 20.0
MEMORY_MIB = 192  # what a victim of the kind "memory" may have
_NET = 0x40000000  # CLONE_NEWNET
_CGROUPS = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A control group whose member is killed by the kernel when it takes more; of either version, if there is one."""

    def __init__(self) -> None:
        first, second = _CGROUPS / "memory", _CGROUPS / "cgroup.subtree_control"
        self.is_there = first.is_dir() or (second.exists() and "memory" in second.read_text())
        self._folder = (first if first.is_dir() else _CGROUPS) / f"smdp-fire-{os.getpid()}"
        self._limit = "memory.limit_in_bytes" if first.is_dir() else "memory.max"

    def __enter__(self) -> MemoryLimit:
        if self.is_there:
            self._folder.mkdir()
            (self._folder / self._limit).write_text(str(MEMORY_MIB << 20))
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_there:
            self._folder.rmdir()

    def join(self) -> None:
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))


class Lane:
    def __init__(self, library: c_interface.Library, lab: Lab, limit: MemoryLimit) -> None:
        self._library = library
        self._lab = lab
        self._limit = limit
        self._libc = ctypes.CDLL(None, use_errno=True)
        pids = lab.address_to_pid()
        self._networks = [os.open(f"/proc/{pids[lab.address(host)]}/ns/net", os.O_RDONLY) for host in range(2)]

    def run(self, fault: Fault, patience: float) -> Verdict:
        if fault.kind == "memory" and not self._limit.is_there:
            fault = replace(fault, kind="kill")
        memory = mmap.mmap(-1, 4096)
        record = Record.from_buffer(memory)
        port = free_port()
        children = {me: self._fork(fault, me, record, port) for me in range(len(fault.hosts))}
        try:
            outcomes = self._listen(fault, record, {me: pipe for me, (_, pipe) in children.items()})
        finally:
            self._end(fault, record, children)
        return judge(fault, record.struck_ns, outcomes, patience)

    def _fork(self, fault: Fault, me: int, record: Record, port: int) -> tuple[int, int]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return pid, reading
        try:
            os.close(reading)
            if self._libc.setns(self._networks[fault.hosts[me]], _NET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            if fault.kind == "memory" and me == fault.victim:
                self._limit.join()
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)  # warnings
            master = self._lab.address(0)
            outcome = life.live(fault, me, ctypes.addressof(record), self._library, port, master)
            os.write(writing, json.dumps(outcome).encode())
        except BaseException:
            os.write(writing, json.dumps({"error": traceback.format_exc()}).encode())
        finally:
            os._exit(0)

    def _listen(self, fault: Fault, record: Record, pipes: dict[int, int]) -> dict[int, Any]:
        """Until all have told or are gone; what is not there in time hung."""
        silent = {fault.victim} if fault.kind in (*DEADLY, "stop") else set()
        outcomes: dict[int, Any] = {me: {} for me in pipes if me not in silent}
        selector = selectors.DefaultSelector()
        for me, pipe in pipes.items():
            selector.register(pipe, selectors.EVENT_READ, me)
        waiting = set(outcomes)
        ends = time.monotonic() + HANG_S
        while waiting and time.monotonic() < ends:
            for key, _ in selector.select(0.002 if fault.kind == "link" and not record.link_cut else 0.2):
                told = os.read(key.fd, 65536)
                if told:
                    outcomes[key.data] = json.loads(told)
                selector.unregister(key.fd)
                waiting.discard(key.data)
            if record.link_wanted and not record.link_cut:
                self._link(fault.hosts[fault.victim], "down")
                record.link_cut = 1
            if record.struck_ns == 0 and waiting <= {fault.victim}:
                break  # it was not struck: what it does now matters to nobody
        return outcomes if record.struck_ns else {}

    def _end(self, fault: Fault, record: Record, children: dict[int, tuple[int, int]]) -> None:
        for pid, pipe in children.values():
            os.close(pipe)
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if record.link_cut:
            self._link(fault.hosts[fault.victim], "up")

    def _link(self, host: int, state: str) -> None:
        subprocess.run([*self._lab.enter(len(LAYOUTS["2x2"])), "ip", "link", "set", f"port{host}", state], check=True)
