"""The drivers report a host's devices, and an instance with GPUs is not used without them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest
from entrypoint_support.host import wait_until

from smdp_entrypoint.contract import devices
from smdp_entrypoint.contract.custom_options import exported_variables
from smdp_entrypoint.contract.devices import Devices, System, check_gpus, count_devices
from smdp_entrypoint.contract.errors import DeviceError
from smdp_entrypoint.contract.fabric import fabric_variables, plugin_version
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.platform_files import read_contract
from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.worker_variables import default_variables

if TYPE_CHECKING:
    from entrypoint_support.host import Host


@pytest.fixture
def system(tmp_path: Path) -> System:
    system = System(tmp_path / "dev", tmp_path / "proc", tmp_path / "sys")
    for folder in (system.dev, system.proc, system.sys):
        folder.mkdir()
    return system


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a program nvidia-smi as the only one on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(script: str) -> None:
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "nvidia-smi").chmod(0o755)

    return install


def test_gpus_are_counted_by_the_drivers_tool(tool: Callable[[str], None], system: System, messages: list[str]) -> None:
    tool('echo "GPU 0: A100"; echo "  MIG 1g"; echo "GPU 1: A100"')
    assert count_devices(messages.append, system).gpus == 2
    assert messages == []


def test_an_image_without_the_tool_has_the_drivers_device_files(
    tool: Callable[[str], None], system: System, messages: list[str]
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (system.dev / name).touch()
    assert count_devices(messages.append, system).gpus == 3


def test_tool_without_driver_is_logged_and_gives_no_gpu(
    tool: Callable[[str], None], system: System, messages: list[str]
) -> None:
    tool('echo "no driver"; exit 9')
    assert count_devices(messages.append, system).gpus == 0
    assert messages == ["nvidia-smi --list-gpus failed with exit code 9: no driver; this host has no GPU driver"]


@pytest.mark.parametrize("sign", ["dev/nvidia0", "proc/driver/nvidia/version"])
def test_a_driver_that_does_not_answer_is_refused(
    tool: Callable[[str], None], system: System, messages: list[str], tmp_path: Path, sign: str
) -> None:
    (tmp_path / sign).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / sign).touch()
    tool('echo "Unable to determine the device handle"; exit 15')
    with pytest.raises(DeviceError, match=r"does not answer: .* exit code 15: Unable to determine"):
        count_devices(messages.append, system)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_tool_that_cannot_be_killed_is_left_behind(
    tool: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in a system call of a driver that hangs ignores SIGKILL until the call returns."""
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: None)
    monkeypatch.setattr(devices, "_TOOL_TIMEOUT_S", 0.1)
    pid_file = tmp_path / "pid"
    tool(f'echo $$ > "{pid_file}"; exec {sys.executable} -c "import time; time.sleep(200)"')
    answer = devices.ask(["nvidia-smi", "--list-gpus"])
    assert answer.failure is not None and "nvidia-smi --list-gpus did not answer" in answer.failure
    pid = int(wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), "the tool's process ID"))
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)  # it still runs
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("instance_type", ["ml.p4d.24xlarge", "ml.g5.xlarge", "ml.p6e-gb200.36xlarge"])
def test_gpu_instance_without_visible_gpus_is_refused(instance_type: str) -> None:
    with pytest.raises(DeviceError, match=f"This host is an {instance_type}"):
        check_gpus(Devices(8, 0, 0), instance_type)
    check_gpus(Devices(8, 1, 0), instance_type)


@pytest.mark.parametrize("instance_type", ["ml.m5.large", "ml.c5n.18xlarge", "ml.trn1.32xlarge", "local"])
def test_other_instances_need_no_gpu(instance_type: str) -> None:
    check_gpus(Devices(8, 0, 0), instance_type)


def test_refusal_is_in_the_failure_file(host: Host) -> None:
    host.job("print('never')")
    resources = {"current_host": "algo-1", "hosts": ["algo-1"], "current_instance_type": "ml.p4d.24xlarge"}
    host.config("resourceconfig.json", resources)
    assert host.run(PATH="/nowhere") == 1
    assert host.failure.startswith("This host is an ml.p4d.24xlarge, which has GPUs, but the container sees none.")
    assert host.events("host_failed")[0]["error"] == host.failure[: -len(" (on algo-1)")]
    assert host.run(PATH="/nowhere", SMDP_REQUIRE_GPU="0") == 0


def test_fabric_settings_need_the_adapter(system: System, messages: list[str], host: Host) -> None:
    vendor = system.sys / "class/infiniband/efa_0/device/vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("0x1d0f\n")
    assert not count_devices(messages.append, system).efa
    (system.dev / "infiniband").mkdir()
    (system.dev / "infiniband/uverbs0").touch()
    devices = count_devices(messages.append, system)
    assert devices.efa
    layout, contract = Layout(("algo-1",), "algo-1", 1), read_contract(MlTree(host.job().root))
    with_adapter = default_variables(contract, layout, devices, {}, messages.append)
    without = default_variables(contract, layout, Devices(8, 8, 0), {}, messages.append)
    expected = fabric_variables({})
    assert {name: with_adapter[name] for name in with_adapter.keys() - without.keys()} == expected
    assert expected["FI_PROVIDER"] == "efa"
    assert any("Elastic Fabric Adapter: FI_PROVIDER=efa" in line for line in messages)
    vendor.write_text("0x15b3\n")
    assert not count_devices(messages.append, system).efa


@pytest.mark.parametrize(
    ("kernel", "fork_safe"),
    [
        ("4.14.336-253.554.amzn2.x86_64", True),
        ("5.10.201-191.748.amzn2.x86_64", True),
        ("5.15.0-1051-aws", False),
        ("6.1.66-91.160.amzn2023.x86_64", False),
        ("unreadable", False),
    ],
)
def test_libfabric_is_made_fork_safe_on_kernels_that_need_it(kernel: str, fork_safe: bool) -> None:
    variables = fabric_variables({}, kernel)
    assert ("FI_EFA_FORK_SAFE" in variables) == fork_safe
    assert "RDMAV_FORK_SAFE" not in variables


@pytest.mark.parametrize(
    ("text", "version", "protocol"),
    [
        (b"NET/OFI\0Using aws-ofi-nccl 1.4.0aws\0", (1, 4), "simple"),
        (b"Using aws-ofi-nccl 1.5.0aws", (1, 5), "simple"),
        (b"Initializing aws-ofi-nccl 1.6.0aws", (1, 6), None),
        (b"Initializing aws-ofi-nccl 1.13.2-aws", (1, 13), None),
        (b"another plugin", None, None),
    ],
)
def test_nccl_protocol_is_set_for_old_plugins_only(
    tmp_path: Path, text: bytes, version: tuple[int, int] | None, protocol: str | None
) -> None:
    (tmp_path / "libnccl-net.so").write_bytes(b"\x7fELF" + text)
    environ = {"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}"}
    assert plugin_version(environ) == version
    assert fabric_variables(environ, "6.1.0").get("NCCL_PROTO") == protocol
    assert plugin_version({}) is None


@pytest.mark.parametrize(
    ("options", "expected", "unused"),
    [
        ("", {}, ""),
        ("-verbose -x NCCL_DEBUG=VERSION", {"NCCL_DEBUG": "VERSION"}, "-verbose"),
        ("--NCCL_DEBUG INFO -x HERE -x A=b=c", {"NCCL_DEBUG": "INFO", "HERE": "1", "A": "b=c"}, ""),
        ("--NCCL_DEBUG=WARN -x", {"NCCL_DEBUG": "WARN"}, "-x"),
    ],
)
def test_mpirun_options_that_export_variables_are_applied(
    host: Host, messages: list[str], options: str, expected: dict[str, str], unused: str
) -> None:
    host.job(sagemaker_distributed_dataparallel_custom_mpi_options=options)
    assert exported_variables(read_contract(MlTree(host.root)), {"HERE": "1"}, messages.append) == expected
    assert [line.partition(": ")[2] for line in messages] == ([unused] if unused else [])
