"""The drivers report a host's devices, and an instance with GPUs is not used without them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest
from entrypoint_support.host import wait_until

from smdp_entrypoint.contract import devices, fabric
from smdp_entrypoint.contract.custom_options import exported_variables
from smdp_entrypoint.contract.devices import Devices, System, check_gpus, count_devices, usable_cores
from smdp_entrypoint.contract.errors import DeviceError
from smdp_entrypoint.contract.fabric import fabric_variables, has_plugin, libfabric_version, plugin_version
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


def libfabric(folder: Path, major: int, minor: int) -> dict[str, str]:
    """The variables of a job that loads a libfabric of that version."""
    source, library = folder / "fabric.c", folder / "libfabric.so.1"
    source.write_text(f"unsigned fi_version(void) {{ return {major} << 16 | {minor}; }}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"SMDP_LIBFABRIC": str(library)}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")
@pytest.mark.parametrize(
    ("version", "instance_type", "expected"),
    [
        ((1, 16), "ml.p4d.24xlarge", "1"),
        ((1, 17), "ml.p4de.24xlarge", "1"),
        ((1, 18), "ml.p4d.24xlarge", None),
        ((2, 1), "ml.p5.48xlarge", None),
        ((1, 16), "ml.p3dn.24xlarge", None),
    ],
)
def test_rdma_of_the_adapter_is_requested_from_a_libfabric_that_needs_the_variable(
    tmp_path: Path, version: tuple[int, int], instance_type: str, expected: str | None
) -> None:
    environ = libfabric(tmp_path, *version)
    assert libfabric_version(environ) == version
    variables = fabric_variables(environ, "6.1.0", instance_type)
    assert variables.get("FI_EFA_USE_DEVICE_RDMA") == expected


def test_missing_or_damaged_libfabric_sets_no_variable(tmp_path: Path) -> None:
    (tmp_path / "libfabric.so.1").write_text("no library")
    for path in (tmp_path / "libfabric.so.1", tmp_path / "none"):
        environ = {"SMDP_LIBFABRIC": str(path)}
        assert libfabric_version(environ) is None
        assert "FI_EFA_USE_DEVICE_RDMA" not in fabric_variables(environ, "6.1.0", "ml.p4d.24xlarge")


@pytest.mark.parametrize("name", ["libnccl-net.so", "libnccl-net-ofi.so"])
def test_host_says_that_nccl_uses_tcp_without_a_plugin(
    host: Host, tmp_path: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fabric, "_PLUGIN_FOLDERS", ())
    monkeypatch.setattr(fabric, "_SYSTEM_FOLDERS", ())
    monkeypatch.setattr(fabric, "_LINKER_CACHE", tmp_path / "cache")
    contract = read_contract(MlTree(host.job(sagemaker_torch_distributed_enabled=True).root))
    two, one = Layout(("algo-1", "algo-2"), "algo-1", 1), Layout(("algo-1",), "algo-1", 1)
    devices = Devices(8, 8, 0, efa=True)

    def warnings(layout: Layout, **environ: str) -> list[str]:
        messages.clear()
        default_variables(contract, layout, devices, environ, messages.append)
        return [line for line in messages if "no NCCL plugin for EFA" in line]

    assert len(warnings(two)) == 1
    assert "over TCP" in warnings(two)[0]
    assert warnings(one) == []
    assert warnings(two, NCCL_NET_PLUGIN="/opt/mine.so") == []
    (tmp_path / name).touch()
    assert warnings(two, LD_LIBRARY_PATH=str(tmp_path)) == []
    (tmp_path / "cache").write_bytes(b"\0libc.so.6\0" + name.encode() + b"\0")
    assert has_plugin({})
    contract = read_contract(MlTree(host.job().root))
    (tmp_path / "cache").unlink()
    assert warnings(two) == []


@pytest.mark.parametrize(
    ("options", "expected", "unused"),
    [
        ("", {}, ""),
        ("-verbose -x NCCL_DEBUG=VERSION", {"NCCL_DEBUG": "VERSION"}, "-verbose"),
        ("--NCCL_DEBUG INFO -x HERE -x A=b=c", {"NCCL_DEBUG": "INFO", "HERE": "1", "A": "b=c"}, ""),
        ("--NCCL_DEBUG=WARN -x", {"NCCL_DEBUG": "WARN"}, "-x"),
        ("-x ABSENT -x HERE -x EMPTY=", {"HERE": "1", "EMPTY": ""}, "ABSENT"),
    ],
)
def test_mpirun_options_that_export_variables_are_applied(
    host: Host, messages: list[str], options: str, expected: dict[str, str], unused: str
) -> None:
    host.job(sagemaker_distributed_dataparallel_custom_mpi_options=options)
    assert exported_variables(read_contract(MlTree(host.root)), {"HERE": "1"}, (), messages.append) == expected
    assert [line.partition(": ")[2] for line in messages] == ([unused] if unused else [])


def test_exported_variable_that_is_not_set_keeps_its_default(host: Host) -> None:
    options = "-x OMP_NUM_THREADS -x SM_HOSTS -x CUDA_VISIBLE_DEVICES"
    script = "import os; print([os.environ.get(name) for name in ('OMP_NUM_THREADS', 'CUDA_VISIBLE_DEVICES')])"
    host.job(script, sagemaker_distributed_dataparallel_custom_mpi_options=options)
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 0
    assert host.of_rank(0) == [f"['{max(1, usable_cores() // 2)}', None]"]
    text = "the custom MPI options export variables that are not set: CUDA_VISIBLE_DEVICES"
    assert f"[algo-1] {text}" in host.lines
