"""Runs jobs with an injected fault, one after the other, on two hosts (network namespaces). Needs root."""

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

from fault_injection import rank_script
from fault_injection.faults import DEADLY, LAYOUTS, RESUMED, Fault
from fault_injection.judge import Verdict, judge
from fault_injection.record import Record

HANG_S = 20.0
MEMORY_MIB = 192  # the memory limit of a victim of the kind "memory"
_NET = 0x40000000  # CLONE_NEWNET
_CGROUPS = Path("/sys/fs/cgroup")


class MemoryLimit:
    """A control group (version 1 or 2) whose process the kernel kills when it exceeds MEMORY_MIB."""

    def __init__(self) -> None:
        first, second = _CGROUPS / "memory", _CGROUPS / "cgroup.subtree_control"
        self.is_available = first.is_dir() or (second.exists() and "memory" in second.read_text())
        self._folder = (first if first.is_dir() else _CGROUPS) / f"smdp-faults-{os.getpid()}"
        self._limit = "memory.limit_in_bytes" if first.is_dir() else "memory.max"

    def __enter__(self) -> MemoryLimit:
        if self.is_available:
            self._folder.mkdir()
            (self._folder / self._limit).write_text(str(MEMORY_MIB << 20))
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_available:
            self._folder.rmdir()

    def join(self) -> None:
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))


class JobRunner:
    def __init__(self, library: c_interface.Library, lab: Lab, limit: MemoryLimit) -> None:
        self._library = library
        self._lab = lab
        self._limit = limit
        self._libc = ctypes.CDLL(None, use_errno=True)
        pids = lab.address_to_pid()
        self._networks = [os.open(f"/proc/{pids[lab.address(host)]}/ns/net", os.O_RDONLY) for host in range(2)]

    def run(self, fault: Fault, time_factor: float) -> Verdict:
        if fault.kind == "memory" and not self._limit.is_available:
            fault = replace(fault, kind="kill")
        memory = mmap.mmap(-1, 4096)
        record = Record.from_buffer(memory)
        port = free_port()
        children = {me: self._fork(fault, me, record, port) for me in range(len(fault.hosts))}
        try:
            pipes = {me: pipe for me, (_, pipe) in children.items()}
            outcomes = self._collect(fault, record, pipes, children[fault.victim][0])
        finally:
            self._end(fault, record, children)
        return judge(fault, record.injected_ns, record.resumed_ns, outcomes, time_factor)

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
            outcome = rank_script.run_rank(fault, me, ctypes.addressof(record), self._library, port, master)
            os.write(writing, json.dumps(outcome).encode())
        except BaseException:
            os.write(writing, json.dumps({"error": traceback.format_exc()}).encode())
        finally:
            os._exit(0)

    def _collect(self, fault: Fault, record: Record, pipes: dict[int, int], victim_pid: int) -> dict[int, Any]:
        """Wait for the ranks' outcomes; a rank without one after HANG_S hangs."""
        silent = {fault.victim} if fault.kind in (*DEADLY, "stop") else set()
        outcomes: dict[int, Any] = {me: {} for me in pipes if me not in silent}
        # Closed here: a child would close it whenever it collects garbage, and its own resources would seem fewer.
        with selectors.DefaultSelector() as selector:
            for me, pipe in pipes.items():
                selector.register(pipe, selectors.EVENT_READ, me)
            waiting = set(outcomes)
            ends = time.monotonic() + HANG_S
            while waiting and time.monotonic() < ends:
                for key, _ in selector.select(0.002 if fault.kind == "link" and not record.link_cut else 0.2):
                    data = os.read(key.fd, 65536)
                    if data:
                        outcomes[key.data] = json.loads(data)
                    selector.unregister(key.fd)
                    waiting.discard(key.data)
                if record.link_requested and not record.link_cut:
                    self._link(fault.hosts[fault.victim], "down")
                    record.link_cut = 1
                if fault.kind in RESUMED and record.injected_ns and waiting <= {fault.victim}:
                    record.resumed_ns = record.resumed_ns or time.monotonic_ns()
                    os.kill(victim_pid, signal.SIGCONT)  # again where it came before the stop
                elif record.injected_ns == 0 and waiting <= {fault.victim}:
                    break  # no fault was injected, so the victim need not be waited for
        return outcomes

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
