"""The clock of each host is compared with that of the first host before the script starts."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import entrypoint_support
import pytest
from entrypoint_support.host import hosts_file

from smdp_entrypoint.contract.errors import HealthError
from smdp_entrypoint.control.clocks import ClockDifference, ClockExchange, check_clock

if TYPE_CHECKING:
    from entrypoint_support.host import Host

NAMES = ["algo-1", "algo-2"]
SOURCE = Path(entrypoint_support.__path__[0]) / "shifted_clock.c"
# Both hosts get the failure before a script ends by itself.
SCRIPT = """
import os, time
print("started", flush=True)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("clock") / "shifted_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", str(SOURCE), "-o", str(library)], check=True, timeout=60)
    return str(library)


def started(hosts: list[Host], tmp_path: Path, clock: str, shift: int, **environ: str) -> Path:
    """Start the job; the clock of the last host is ``shift`` seconds ahead. Return the file that ends the scripts."""
    file, go = hosts_file(tmp_path / "hosts", NAMES), tmp_path / "go"
    shifted = {"LD_PRELOAD": clock, "SHIFT_S": str(shift)}
    for host in hosts:
        more = shifted if host is hosts[-1] else {}
        host.job(SCRIPT).start(
            SMDP_WORKERS_PER_HOST="1", SMDP_HOSTS_FILE=file, SMDP_JOB_TOKEN="7" * 32, GO=str(go), **more, **environ
        )
    return go


@pytest.mark.parametrize(("shift", "where"), [(90, "ahead of"), (-90, "behind")])
def test_host_with_another_time_is_named_with_the_difference(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path, clock: str, shift: int, where: str
) -> None:
    hosts = cluster(NAMES)
    go = started(hosts, tmp_path, clock, shift)
    line = hosts[1].wait_for_line(f"{where} that of algo-1")
    go.touch()
    assert [host.wait() for host in hosts] == [0, 0]
    assert "host algo-2: its clock is " in line
    seconds, error = float(line.split("its clock is ")[1].split()[0]), float(line.split("(+-")[1].split()[0])
    assert abs(seconds - 90) <= error + 0.1
    assert "its clock" not in hosts[0].text


def test_host_whose_requests_aws_refuses_ends_the_job(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path, clock: str
) -> None:
    hosts = cluster(NAMES)
    started(hosts, tmp_path, clock, 400)
    assert [host.wait() for host in hosts] == [1, 1]
    for host in hosts:
        assert host.failure.startswith("unhealthy host algo-2: its clock is ")
        assert "s ahead of that of algo-1" in host.failure
    assert "started" not in hosts[1].text


@pytest.mark.parametrize(("shift", "environ"), [(2, {}), (400, {"SMDP_HEALTH_CHECK": "0"})])
def test_small_difference_and_switched_off_check_say_nothing(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path, clock: str, shift: int, environ: dict[str, str]
) -> None:
    hosts = cluster(NAMES)
    go = started(hosts, tmp_path, clock, shift, **environ)
    hosts[1].wait_for_line("started")
    go.touch()
    assert [host.wait() for host in hosts] == [0, 0]
    assert "its clock" not in hosts[1].text


def test_difference_counts_only_beyond_its_error() -> None:
    said: list[str] = []
    check_clock("algo-2", "algo-1", ClockDifference(301.0, 1.5), said.append)
    assert len(said) == 1
    check_clock("algo-2", "algo-1", ClockDifference(-5.5, 0.6), said.append)
    check_clock("algo-2", "algo-1", None, said.append)
    assert len(said) == 1
    with pytest.raises(HealthError, match=r"its clock is 301\.0 s behind that of algo-1"):
        check_clock("algo-2", "algo-1", ClockDifference(-301.0, 0.5), said.append)


def test_fastest_exchange_counts_and_malformed_answers_do_not() -> None:
    sent: list[dict[str, Any]] = []
    exchange = ClockExchange(sent.append)
    exchange.ask()
    for wrong in ({"number": 7, "time": 1.0}, {"number": 1, "time": "now"}, {"number": 1, "time": float("nan")}):
        assert not exchange.take(wrong)
    assert exchange.best is None
    errors = []
    while not exchange.take({"number": len(sent), "time": time.time() - 50}):
        assert exchange.best is not None
        errors.append(exchange.best.error)
    assert len(sent) == 5
    assert exchange.best is not None
    assert exchange.best.error == min([*errors, exchange.best.error])
    assert abs(exchange.best.seconds - 50) <= exchange.best.error + 0.01
