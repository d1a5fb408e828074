"""A fake machine: a folder with the files in which the kernel reports its counters."""

from __future__ import annotations

from pathlib import Path

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.resources.channels import Channels
from smdp_entrypoint.resources.gpus import Gpus
from smdp_entrypoint.resources.sampler import Sampler
from smdp_entrypoint.resources.system_files import SystemFiles

TICKS = 100  # of a processor, a second
# user nice system idle iowait irq softirq steal guest guest_nice, two seconds apart
STAT = (
    "cpu  900 90 300 9000 120 30 60 15 0 0\n"
    "cpu0 300 30 100 3000 40 10 20 5 0 0\n"
    "cpu1 300 30 100 3000 40 10 20 5 0 0\n"
    "cpu2 300 30 100 3000 40 10 20 5 0 0\n"
    "intr 1 2 3\nctxt 5\n"
)
STAT_LATER = (
    "cpu  1400 90 400 9000 220 30 60 15 0 0\n"
    "cpu0 400 30 120 3000 90 10 20 5 0 0\n"
    "cpu1 350 30 130 3000 40 10 20 60 0 0\n"
    "cpu2 650 30 150 3000 90 10 20 5 0 0\n"
)
MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"
NET = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls\n"
)


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = SystemFiles(root)
        self.tree = MlTree(root / "opt/ml")

    def write(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def network(self, **interfaces: tuple[int, int]) -> None:
        lines = [f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0\n" for name, (received, sent) in interfaces.items()]
        self.write("/proc/net/dev", NET + "".join(lines))

    def disks(self, **devices: tuple[int, int]) -> None:
        """Sectors read and written of each device."""
        lines = [f"   8  0 {name} 7 0 {read} 9 7 0 {written} 9 0 9 9\n" for name, (read, written) in devices.items()]
        self.write("/proc/diskstats", "".join(lines))

    def process(self, pid: int, parent: int, session: int, *seconds: float, pages: tuple[int, int] = (10, 4)) -> None:
        """`seconds`: user, system, and those of reaped children. `pages`: resident, and the shared part of them."""
        ticks = [round(one * TICKS) for one in (*seconds, 0, 0, 0)[:4]]
        before = f"{pid} (a ) (b) S {parent} {session} {session} 0 -1 4194304 100 0 0 0 "
        self.write(f"/proc/{pid}/stat", before + " ".join(map(str, ticks)) + " 20 0 1 0 5 6 7\n")
        self.write(f"/proc/{pid}/statm", f"5000 {pages[0]} {pages[1]} 1 0 9 0\n")

    def mounts(self, *mounts: tuple[str, str, str]) -> None:
        """Mount point, type and source of each."""
        lines = [f"40 30 0:50 / {point} rw shared:1 - {kind} {source} rw\n" for point, kind, source in mounts]
        self.write("/proc/self/mountinfo", "".join(lines))

    def channel(self, name: str) -> str:
        return str(self.tree.data / name)

    def sampler(
        self, channels: dict[str, object] | None = None, workers: tuple[int, ...] = (), gpus: Gpus | None = None
    ) -> Sampler:
        return Sampler(self.files, Channels(self.files, self.tree, channels or {}), gpus, lambda: workers, cores={0, 1})
