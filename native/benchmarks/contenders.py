"""Starts each contender's ranks on the lab's hosts; all print one JSON line per rank and case."""

import ctypes.util
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Optional

from lab import Lab

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "bench"
PORT = 7592
LIMIT_S = 600


@dataclass(frozen=True)
class Setup:
    """A run of a contender: ``per_host`` ranks on every host of the lab."""

    lab: Lab
    per_host: int
    cases: str
    dtype: str

    @property
    def size(self) -> int:
        return self.lab.hosts * self.per_host


Report = Dict[str, object]


def build() -> None:
    """Compile the programs; the one for MPI only if an MPI is installed."""
    source = str(HERE.parent)
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DSMDP_TORCH=OFF", "-DSMDP_BENCHMARKS=ON"]
    subprocess.run(["cmake", "-S", source, "-B", str(BUILD), *options], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(BUILD), "--parallel", "2"], check=True, stdout=subprocess.DEVNULL)


def _reports(outputs: List[str]) -> List[Report]:
    lines = [line for output in outputs for line in output.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def _outputs(setup: Setup, command: List[str], environment: Dict[str, str]) -> List[str]:
    processes = []
    for rank in range(setup.size):
        host, local = divmod(rank, setup.per_host)
        settings = {
            # Without the caller's own engine settings: the command shows all settings of the measurement.
            **{name: value for name, value in os.environ.items() if not name.startswith("SMDP_")},
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(setup.size),
            "MASTER_ADDR": setup.lab.address(0),
            "MASTER_PORT": str(PORT + 1),
            **environment,
        }
        processes.append(
            subprocess.Popen([*setup.lab.enter(host), *command], env=settings, stdout=subprocess.PIPE, text=True)
        )
    try:
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode != 0 for process in processes):
        raise RuntimeError(f"{command[0]}: exit codes {[process.returncode for process in processes]}")
    return outputs


def ranks(setup: Setup, command: List[str], environment: Dict[str, str]) -> List[Report]:
    return _reports(_outputs(setup, command, environment))


ENGINE = str(BUILD / "benchmarks" / "bench_engine")
TOKEN = {"SMDP_JOB_TOKEN": "5" * 32}


def small_beside_bulk(setup: Setup) -> List[float]:
    """The milliseconds of 4 KiB on rank 0 while another group reduces 25 MiB."""
    lines = _outputs(setup, [ENGINE, "small-beside-bulk"], TOKEN)[0].splitlines()
    return [float(line.split()[0]) for line in lines if line.endswith("under way")]


def _engine(environment: Dict[str, str]) -> Callable[[Setup], List[Report]]:
    def start(setup: Setup) -> List[Report]:
        return ranks(setup, [ENGINE, setup.cases, setup.dtype], {**TOKEN, **environment})

    return start


def _torch(backend: str, environment: Dict[str, str]) -> Callable[[Setup], List[Report]]:
    def start(setup: Setup) -> List[Report]:
        command = [sys.executable, str(HERE / "bench_torch.py"), setup.cases, setup.dtype, backend]
        return ranks(setup, command, environment)

    return start


def open_mpi(setup: Setup) -> List[Report]:
    """TCP between hosts, shared memory within a host. mpirun runs on the first host and enters the others."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        agent = Path(folder) / "agent"
        pids = " ".join(f"{address}) pid={pid};;" for address, pid in setup.lab.address_to_pid().items())
        agent.write_text(f'#!/bin/sh\ncase $1 in {pids} esac\nshift\nexec nsenter -t $pid -n -m -u -i -- sh -c "$*"\n')
        agent.chmod(0o755)
        hosts = ",".join(f"{address}:{setup.per_host}" for address in setup.lab.address_to_pid())
        settings = {
            "plm_rsh_agent": str(agent),
            "btl": "tcp,vader,self",
            "btl_tcp_if_include": "eth0",
            "oob_tcp_if_include": "eth0",
            "mpi_yield_when_idle": "1",
            "coll": "^han",
            "hwloc_base_binding_policy": "none",
        }
        options = [word for name, value in settings.items() for word in ("--mca", name, value)]
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--host", hosts, "-np", str(setup.size)]
        program = [str(BUILD / "benchmarks" / "bench_mpi"), setup.cases, setup.dtype]
        done = subprocess.run(
            [*setup.lab.enter(0), *command, *options, *program],
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        return _reports([done.stdout])


GLOO = BUILD / "benchmarks" / "bench_gloo"


def gloo_alone(setup: Setup) -> List[Report]:
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        environment = {"GLOO_SOCKET_IFNAME": "eth0", "GLOO_STORE": folder}
        return ranks(setup, [str(GLOO), setup.cases, setup.dtype], environment)


@dataclass(frozen=True)
class Contender:
    name: str
    start: Callable[[Setup], List[Report]]
    dtypes: "tuple[str, ...]" = ("float32", "float16", "bfloat16")
    needs: Optional[str] = None  # a Python package
    one_host: bool = False
    library: Optional[str] = None  # of the system

    def why_not(self, setup: Setup) -> Optional[str]:
        if setup.dtype not in self.dtypes:
            return f"no {setup.dtype}"
        if self.one_host and (setup.lab.hosts > 1 or setup.cases.startswith("@")):
            return "for one host, and one sum at a time"
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return "not installed"
        if self.name == "openmpi" and shutil.which("mpirun") is None:
            return "not installed"
        if self.name == "gloo-alone" and not GLOO.exists():
            return "not installed"
        return "not installed" if self.library and ctypes.util.find_library(self.library) is None else None


FABRIC = {"SMDP_TRANSPORT": "ofi", "FI_PROVIDER": "tcp;ofi_rxm"}
FOUR = {"GLOO_SOCKET_IFNAME": "eth0,eth0,eth0,eth0"}
CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("smdp", _engine({})),
        Contender("smdp-fabric", _engine(FABRIC), library="fabric"),
        Contender("smdp-fabric-messages", _engine({**FABRIC, "SMDP_FABRIC_WRITES": "0"}), library="fabric"),
        Contender("smdp-timeline", _engine({"SMDP_TIMELINE": "/tmp/timeline"})),
        Contender("gloo", _torch("gloo", {"GLOO_SOCKET_IFNAME": "eth0"})),
        Contender("gloo-alone", gloo_alone, ("float32",)),
        Contender("gloo4", _torch("gloo", FOUR)),
        Contender(
            "deepspeed",
            _torch("deepspeed", {"GLOO_SOCKET_IFNAME": "eth0", "TORCH_EXTENSIONS_DIR": str(BUILD)}),
            needs="deepspeed",
            one_host=True,
        ),
        Contender("openmpi", open_mpi, ("float32",)),
        Contender("smddp-torch", _torch("smddp", TOKEN)),
    )
}
