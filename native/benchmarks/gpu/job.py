"""Starts a program as the ranks of several simulated hosts on this machine, with a deadline, and reads their reports.

A host is a name (``SMDP_HOST_ID``): ranks with the same name share memory, the others exchange over loopback. A rank
writes its report as the last line of its output.
"""

import argparse
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import figures

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
_LAST_LINES = 15


class JobFailedError(Exception):
    """A rank failed or did not exit in time; the message has the end of its output."""


@dataclass(frozen=True)
class Rank:
    rank: int
    code: int
    out: str
    err: str
    late: bool

    @property
    def report(self) -> Dict[str, Any]:
        """The last line of JSON in the output, {} if there is none."""
        for line in reversed(self.out.splitlines()):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found
        return {}


def is_rank() -> bool:
    return "RANK" in os.environ


def main(
    arguments: argparse.Namespace,
    work: Callable[[argparse.Namespace], None],
    measure: Callable[[argparse.Namespace], List[figures.Figure]],
) -> int:
    """Do the work of a rank, or measure a job of ranks and print its figures; the exit code of the program."""
    if is_rank():
        work(arguments)
        return 0
    return figures.finish(measure(arguments), arguments.json)


def report(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def layout(text: str) -> List[int]:
    """The ranks of each host: ``2x4`` or ``3+1``."""
    if "x" in text:
        hosts, ranks = (int(part) for part in text.split("x"))
        return [ranks] * hosts
    return [int(part) for part in text.split("+")]


def parser(description: Optional[str]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=["cuda", "emulated"], default="cuda", help="emulated: without a GPU")
    made.add_argument("--json", type=Path, help="the file for the figures")
    made.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the engine, SMDP_...; repeatable"
    )
    made.add_argument("--small", action="store_true", help="sizes that a CPU computes in seconds")
    return made


def parsed(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments; ``--small`` has two ranks, as many as are needed for an exchange."""
    arguments = made.parse_args()
    unknown = [one for one in arguments.set if not re.fullmatch(r"SMDP_\w+=.*", one)]
    if unknown:
        made.error(f"--set {unknown[0]}: write SMDP_NAME=VALUE")
    if arguments.small and hasattr(arguments, "layout"):
        arguments.layout = "1+1"
    return arguments


def options(arguments: argparse.Namespace) -> Dict[str, str]:
    """The variables of ``--set``."""
    return dict(one.split("=", 1) for one in arguments.set)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _environments(hosts: Sequence[int], more: Dict[str, str]) -> Iterator[Dict[str, str]]:
    port = str(free_port())
    token = secrets.token_hex(16)
    rank = 0
    for host, count in enumerate(hosts):
        for local_rank in range(count):
            yield {
                # Without the caller's own settings of the engine: the command shows all settings of the measurement.
                **{name: value for name, value in os.environ.items() if not name.startswith("SMDP_")},
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "RANK": str(rank),
                "WORLD_SIZE": str(sum(hosts)),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(count),
                "SMDP_HOST_ID": f"algo-{host + 1}",
                "SMDP_INTERFACE": "127.0.0.1",
                "GLOO_SOCKET_IFNAME": "lo",
                "SMDP_JOB_TOKEN": token,
                **more,
            }
            rank += 1


def ranks(
    hosts: Sequence[int],
    command: Sequence[str],
    *,
    limit_s: float,
    environment: Optional[Dict[str, str]] = None,
) -> List[Rank]:
    """Run the command on every rank until all have exited. Ranks that have not exited at the limit are killed.

    So are all ranks if this process receives SIGTERM.
    """
    with _terminable(), tempfile.TemporaryDirectory(prefix="smdp-gpu-") as folder:
        processes = []
        for rank, settings in enumerate(_environments(hosts, environment or {})):
            with Path(folder, f"{rank}.out").open("wb") as out, Path(folder, f"{rank}.err").open("wb") as err:
                processes.append(
                    subprocess.Popen(list(command), env=settings, stdout=out, stderr=err, start_new_session=True)
                )
        deadline = time.monotonic() + limit_s
        late = set()
        try:
            for rank, process in enumerate(processes):
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    late.add(rank)
                    _kill(process)
        finally:
            for process in processes:
                _kill(process)
        return [
            Rank(rank, process.returncode, *(_text(f"{folder}/{rank}.{kind}") for kind in ("out", "err")), rank in late)
            for rank, process in enumerate(processes)
        ]


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that no rank survives. SIGINT would not do: shells have commands ignore it."""

    def terminate(_signal: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Its children too, such as the program below a sanitizer."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")


def reports(
    program: str,
    hosts: Sequence[int],
    arguments: Sequence[str],
    *,
    limit_s: float,
    environment: Optional[Dict[str, str]] = None,
) -> List[Dict[str, Any]]:
    """The reports of the ranks of one of these programs.

    Raises:
        JobFailedError: a rank failed.
    """
    command = [sys.executable, str(HERE / program), *arguments]
    sys.stderr.write(f"{program} {' '.join(arguments)}: {'+'.join(map(str, hosts))} ranks\n")
    ended = ranks(hosts, command, limit_s=limit_s, environment=environment)
    failed(ended, program, limit_s)
    return [one.report for one in ended]


def failed(ended: Sequence[Rank], name: str, limit_s: float) -> None:
    """Raise JobFailedError for the first rank that did not exit with 0: one that failed before one that was late."""
    for one in sorted(ended, key=lambda one: one.late):
        if one.code != 0:
            how = f"had not exited after {limit_s:g} s" if one.late else f"exited with {one.code}"
            lines = "\n".join(one.err.splitlines()[-_LAST_LINES:])
            raise JobFailedError(f"{name}: rank {one.rank} {how}:\n{lines}")
