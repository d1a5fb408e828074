"""A cluster of SLURM on this machine: slurmctld and one slurmd for each host of the lab (native/benchmarks/lab.py).

The hosts are network, mount, IPC and UTS namespaces, so the names, addresses and variables are those of real nodes. As
on Debian, the name of a host is 127.0.1.1 on the host itself. Needs root and the programs of slurmctld, slurmd and
slurm-client. The folder is outside /tmp, which each host has for itself.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Dict, List, Optional, Type

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
from lab import Lab

from .launched import environment

PROGRAMS = ("slurmctld", "slurmd", "srun", "salloc", "sbatch", "sinfo")
_START_S = 60
_CONFIGURATION = """
ClusterName=lab
SlurmctldHost=algo-1
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/tmp/slurm-state
SlurmdSpoolDir=/tmp/slurm-spool
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
NodeName=algo-[1-{hosts}] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class SlurmCluster:
    """``hosts`` nodes, algo-1 and so on, with 4 processors each as SLURM counts them."""

    def __init__(self, hosts: int, folder: Path) -> None:
        self.folder = folder
        self._lab = Lab(hosts, None)
        self._daemons: List[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "SlurmCluster":
        self._lab.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._kill_all()
        for daemon in self._daemons:
            daemon.wait()
        self._lab.__exit__(kind, error, trace)

    def _kill_all(self) -> None:
        """Kill the daemons and what they started: a step and its tasks outlive them."""
        holders = set(self._lab.address_to_pid().values())
        networks = {os.readlink(f"/proc/{holder}/ns/net") for holder in holders}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(process.name) not in holders and os.readlink(process / "ns" / "net") in networks:
                    os.kill(int(process.name), signal.SIGKILL)

    def run(self, command: str, timeout: float = 150, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the shell on algo-1, in the folder."""
        inside = [*self._lab.enter(0), "timeout", str(timeout), "bash", "-c", f"cd {self.folder} && {command}"]
        return subprocess.run(
            inside,
            env=self._variables(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def _variables(self, **more: str) -> Dict[str, str]:
        return environment(SLURM_CONF=str(self.folder / "slurm.conf"), **more)

    def _start(self) -> None:
        numbers = range(self._lab.hosts)
        (self.folder / "slurm.conf").write_text(_CONFIGURATION.format(hosts=self._lab.hosts))
        names = "".join(f"{self._lab.address(host)} algo-{host + 1}\n" for host in numbers)
        for host in numbers:
            own = self.folder / f"hosts-{host}"
            own.write_text(f"127.0.0.1 localhost\n127.0.1.1 algo-{host + 1}\n{names}")
            prepared = f"mount --bind {own} /etc/hosts && mkdir -p /tmp/slurm-state /tmp/slurm-spool"
            subprocess.run([*self._lab.enter(host), "sh", "-c", prepared], check=True)
        self._daemon(0, "slurmctld", "-D", "-c")
        for host in numbers:
            self._daemon(host, "slurmd", "-D", "-N", f"algo-{host + 1}")
        deadline = time.monotonic() + _START_S
        while self.run("sinfo --noheader --format '%T %D'").stdout.split() != ["idle", str(self._lab.hosts)]:
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))
                raise AssertionError(f"SLURM's nodes are not idle after {_START_S} s:\n{logs}")
            time.sleep(0.1)

    def _daemon(self, host: int, *command: str) -> None:
        with (self.folder / f"{command[0]}-{host}.log").open("w") as log:
            started = subprocess.Popen(
                [*self._lab.enter(host), *command], env=self._variables(), stdout=log, stderr=subprocess.STDOUT
            )
        self._daemons.append(started)


def missing() -> List[str]:
    """What this machine lacks for a cluster."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    lacks = [one for one in PROGRAMS if not any(os.access(Path(folder, one), os.X_OK) for folder in folders)]
    if os.geteuid() != 0:
        return ["root", *lacks]
    unshared = subprocess.run(["unshare", "-n", "-m", "-u", "-i", "true"], capture_output=True, check=False)
    return [*(["namespaces"] if unshared.returncode else []), *lacks]
