"""A host that is broken ends the job before its script starts, and is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest

from smdp_entrypoint.contract import health
from smdp_entrypoint.contract.devices import Devices, System
from smdp_entrypoint.contract.errors import HealthError
from smdp_entrypoint.contract.health import check_health

if TYPE_CHECKING:
    from entrypoint_support.host import Host

P4D = "ml.p4d.24xlarge"
EIGHT = Devices(96, 8, 0)


@pytest.fixture
def system(tmp_path: Path) -> System:
    (tmp_path / "dev").mkdir()
    return System(dev=tmp_path / "dev")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a program nvidia-smi as the only one on the path, which writes this text."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(script: str) -> None:
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / "nvidia-smi").chmod(0o755)

    return install


def problem(
    system: System, devices: Devices = EIGHT, instance_type: str = P4D, folders: list[Path] | None = None
) -> str:
    try:
        check_health("algo-2", instance_type, devices, folders or [], lambda text: None, system)
    except HealthError as error:
        return str(error)
    return ""


def test_healthy_host_passes(system: System, tool: Callable[[str], None], tmp_path: Path) -> None:
    tool("printf '0, 0\\n1, 0\\n2, [N/A]\\n'")
    (system.dev / "kmsg").write_text("6,1,2,-;NVRM: loading\n4,2,3,-;NVRM: Xid (PCI:0000:10:1c): 13, pid=7\n")
    assert problem(system, folders=[tmp_path]) == ""


def test_host_with_fewer_gpus_than_its_type_is_named(system: System, tool: Callable[[str], None]) -> None:
    tool("exit 0")
    assert problem(system, Devices(96, 7, 0)) == (
        "unhealthy host algo-2: it has 7 of the 8 GPUs of an ml.p4d.24xlarge. Start the job again to get another host."
    )
    assert problem(system, Devices(8, 1, 0), "ml.g5.xlarge") == ""
    assert problem(system, Devices(8, 0, 0), "ml.m5.large") == ""


def test_uncorrectable_memory_errors_are_named(system: System, tool: Callable[[str], None]) -> None:
    tool("printf '0, 0\\n5, 3\\n'")
    assert "GPU 5 has had 3 uncorrectable ECC errors since its start" in problem(system)


def test_tool_without_an_answer_is_no_problem(system: System, tool: Callable[[str], None]) -> None:
    tool("echo broken; exit 9")
    assert problem(system) == ""


def test_fatal_errors_of_the_driver_are_named_once(system: System, tool: Callable[[str], None]) -> None:
    tool("exit 0")
    line = "4,812,5,-;NVRM: Xid (PCI:0000:10:1c): 79, pid=1, GPU has fallen off the bus.\n"
    (system.dev / "kmsg").write_text(line * 3 + "4,9,9,-;NVRM: Xid (PCI:0000:20:1c): 95, pid=2\n")
    text = problem(system)
    assert text.count("Xid 79 of PCI:0000:10:1c: a GPU that has fallen off the bus") == 1
    assert "Xid 95 of PCI:0000:20:1c" in text


def test_kernel_log_that_cannot_be_read_is_no_problem(system: System, tool: Callable[[str], None]) -> None:
    tool("exit 0")
    assert problem(system) == ""
    os.mkfifo(system.dev / "kmsg")  # without a writer: a read must not wait
    assert problem(system) == ""


def test_full_disk_is_named_once(
    system: System, tool: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("exit 0")
    monkeypatch.setattr(health, "LEAST_FREE", 1 << 60)
    text = problem(system, folders=[tmp_path, tmp_path, tmp_path / "missing"])
    assert text.count("MB free") == 1
    assert f"the disk of {tmp_path} has" in text


def test_unhealthy_host_ends_the_job_before_its_script(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = "#!/bin/sh\ncase $1 in --list-gpus) echo 'GPU 0: A100';; *) echo '0, 2';; esac\n"
    (folder / "nvidia-smi").write_text(script, encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    host.job("print('started')")
    host.config("resourceconfig.json", {"current_host": "algo-1", "hosts": ["algo-1"], "current_instance_type": P4D})
    path = f"{folder}:{os.environ['PATH']}"
    assert host.run(PATH=path) == 1
    assert host.failure.startswith(
        "unhealthy host algo-1: it has 1 of the 8 GPUs of an ml.p4d.24xlarge; GPU 0 has had 2"
    )
    assert "started" not in host.text
    assert host.events("host_failed")


def test_number_of_gpus_is_that_of_the_launchers_catalogue() -> None:
    found: dict[str, int] = {}
    program = "from smdp_launch.catalog.instances import instances; print(*(f'{i.name}={i.gpus}' for i in instances()))"
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("smdp-launch is not installed")
    for pair in listed.stdout.split():
        name, _, gpus = pair.partition("=")
        found[name] = int(gpus)
    assert {name: found[name] for name in health.GPUS} == health.GPUS
