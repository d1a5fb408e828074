"""Jobs of eight hosts whose network is measured, each with one thing wrong."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping

from entrypoint_support.host import Host, wait_until
from entrypoint_support.links import links, write_hosts_file

NAMES = [f"algo-{number}" for number in range(1, 9)]
MBIT = 40
# The worker runs until the test is over.
WAITS = """
import os, time
while not os.path.exists({path!r}):
    time.sleep(0.05)
"""
# Authenticates and receives, and never reports a value.
NEVER_REPORTS = """
import sys, time
from smdp_entrypoint import cli
from smdp_entrypoint.network import caller
caller.Calls.values = lambda calls: time.sleep(3600)
sys.exit(cli.main())
"""


@dataclass(frozen=True)
class Scenario:
    """What is wrong, and the problems that a probe must find: kind, hosts and rail of each.

    Args:
        slow: the host, counted from 0, whose link has a quarter of the speed.
        missing: the host without the second interface.
        silent: the host that does not answer.
    """

    problems: tuple[tuple[str, tuple[str, ...], str | None], ...]
    slow: int | None = None
    missing: int | None = None
    silent: int | None = None


SCENARIOS: Mapping[str, Scenario] = {
    "all well": Scenario(()),
    "a link with a quarter of the speed": Scenario((("slow", ("algo-3",), "eth0"),), slow=2),
    "an interface missing": Scenario((("rail", ("algo-5",), "eth1"),), missing=4),
    "a host that does not answer": Scenario((("silent", ("algo-6",), None),), silent=5),
}


@dataclass
class Job:
    hosts: list[Host]
    over: Path
    environ: dict[str, str] = field(default_factory=dict)

    def start(self, **environ: str) -> None:
        for host in self.hosts:
            host.start(**{**self.environ, **environ})

    def event(self) -> dict[str, Any]:
        """Wait for the event of the probe."""
        first = self.hosts[0]

        def found() -> list[dict[str, Any]]:
            assert first.process is not None and (first.process.poll() is None or first.events("network")), first.text
            return first.events("network")

        return dict(wait_until(found, "the event of the probe")[0])

    def finish(self) -> list[int]:
        self.over.touch()
        return [host.wait() for host in self.hosts]


@contextmanager
def job(folder: Path, mark: str, scenario: Scenario, names: list[str] | None = None) -> Iterator[Job]:
    names = names or NAMES
    missing = {scenario.missing: 1} if scenario.missing is not None else {}
    with links(len(names), MBIT, 2, missing) as made:
        if scenario.slow is not None:
            made.shape(scenario.slow, MBIT / 4)
        file = write_hosts_file(folder / "hosts", names)
        environ = {
            "SMDP_HOSTS_FILE": file,
            "SMDP_WORKERS_PER_HOST": "1",
            "SMDP_NETWORK_GBIT": str(MBIT / 1000),
        }
        started = Job([], folder / "over", environ)
        for number, (name, prefix) in enumerate(zip(names, made.prefixes)):
            host = Host(folder / name, mark, name, list(names), prefix=prefix)
            host.job(WAITS.format(path=str(started.over)))
            if number == scenario.silent:
                host.entrypoint = ["-c", NEVER_REPORTS]
            started.hosts.append(host)
        try:
            yield started
        finally:
            for host in started.hosts:
                host.clean_up()


def problems_of(event: Mapping[str, Any]) -> tuple[tuple[str, tuple[str, ...], str | None], ...]:
    return tuple((one["kind"], tuple(one["hosts"]), one["rail"]) for one in event["problems"])
