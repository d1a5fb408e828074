"""The counters of a fake machine with known numbers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from entrypoint_support.machine import MEMINFO, STAT, STAT_LATER, Machine

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.write("/proc/stat", STAT)
    machine.write("/proc/meminfo", MEMINFO)
    return machine


def test_cpu_time_is_that_of_the_cores_of_the_job(machine: Machine) -> None:
    sampler = machine.sampler()
    machine.write("/proc/stat", STAT_LATER)
    fields = sampler.sample()
    # user and system of cpu0 and cpu1, without the time that another virtual machine took
    assert fields["cores"] == 2
    assert fields["cpu_s"] == 1.2 + 0.8
    assert fields["io_wait_s"] == 0.5


def test_cpu_time_is_the_sum_where_the_cores_have_other_numbers(machine: Machine) -> None:
    machine.write("/proc/stat", "cpu  100 0 0 0 0 0 0 0 0 0\ncpu7 100 0 0 0 0 0 0 0 0 0\n")
    sampler = machine.sampler()
    machine.write("/proc/stat", "cpu  150 0 0 0 0 0 0 0 0 0\ncpu7 150 0 0 0 0 0 0 0 0 0\n")
    assert sampler.sample()["cpu_s"] == 0.5


def test_memory_in_use_excludes_caches(machine: Machine) -> None:
    fields = machine.sampler().sample()
    assert (fields["memory_used"], fields["memory_total"]) == (600 * 1024, 1000 * 1024)


@pytest.mark.parametrize("own", ["/job", "/"], ids=["with-a-path", "as-the-root"])
def test_limits_of_a_version_2_container_apply(machine: Machine, own: str) -> None:
    group = f"/sys/fs/cgroup{own.rstrip('/')}"
    machine.write("/proc/self/cgroup", f"0::{own}\n")
    machine.write("/sys/fs/cgroup/memory.max", "max\n")
    for name, text in {
        "memory.max": "512000",
        "memory.current": "300000",
        "memory.stat": "anon 1\ninactive_file 100000\n",
        "cpu.max": "150000 100000",
        "cpu.stat": "usage_usec 5000000\nuser_usec 1\n",
    }.items():
        machine.write(f"{group}/{name}", text)
    sampler = machine.sampler()
    machine.write("/proc/stat", STAT_LATER)
    machine.write(f"{group}/cpu.stat", "usage_usec 7250000\nuser_usec 1\n")
    fields = sampler.sample()
    assert (fields["memory_used"], fields["memory_total"]) == (200_000, 512_000)
    assert (fields["cores"], fields["cpu_s"]) == (1.5, 2.25)


def test_limits_of_a_version_1_container_apply(machine: Machine) -> None:
    # The path is that of the machine; in the container the mount is the group.
    machine.write("/proc/self/cgroup", "4:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f\n")
    for name, text in {
        "memory/memory.limit_in_bytes": "512000",
        "memory/memory.usage_in_bytes": "300000",
        "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100000\n",
        "cpu/cpu.cfs_quota_us": "50000",
        "cpu/cpu.cfs_period_us": "100000",
        "cpuacct/cpuacct.usage": "5000000000",
    }.items():
        machine.write(f"/sys/fs/cgroup/{name}", text)
    sampler = machine.sampler()
    machine.write("/sys/fs/cgroup/cpuacct/cpuacct.usage", "5250000000")
    fields = sampler.sample()
    assert (fields["memory_used"], fields["memory_total"]) == (200_000, 512_000)
    assert (fields["cores"], fields["cpu_s"]) == (0.5, 0.25)


def test_a_limit_above_the_machine_is_none(machine: Machine) -> None:
    machine.write("/proc/self/cgroup", "4:memory:/\n3:cpu:/\n3:cpuacct:/\n")
    machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    machine.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    machine.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    fields = machine.sampler().sample()
    assert (fields["memory_total"], fields["cores"]) == (1000 * 1024, 2)


def test_disk_bytes_are_those_of_whole_devices(machine: Machine) -> None:
    names = ["sda", "sda1", "nvme0n1", "nvme0n1p1", "nvme0c0n1", "xvdb1", "dm-0", "md127", "loop0", "ram0", "zram0"]
    machine.disks(**dict.fromkeys(names, (100, 1000)))
    sampler = machine.sampler()
    machine.disks(**{name: (100 + 2**number, 1000 + 3) for number, name in enumerate(names)})
    fields = sampler.sample()
    assert fields["disk_read"] == (2**0 + 2**2 + 2**5) * 512  # sda, nvme0n1, xvdb1
    assert fields["disk_written"] == 3 * 3 * 512


def test_network_bytes_exclude_traffic_within_the_machine(machine: Machine) -> None:
    machine.network(lo=(5, 5), eth0=(10, 20), eth1=(100, 200), docker0=(7, 7), veth1=(7, 7))
    sampler = machine.sampler()
    machine.network(lo=(1005, 1005), eth0=(12, 25), eth1=(103, 208), docker0=(1007, 1007), veth1=(1007, 1007))
    fields = sampler.sample()
    assert (fields["net_received"], fields["net_sent"]) == (5, 13)


def test_loopback_counts_where_there_is_no_other_interface(machine: Machine) -> None:
    machine.network(lo=(5, 5))
    sampler = machine.sampler()
    machine.network(lo=(15, 25))
    fields = sampler.sample()
    assert (fields["net_received"], fields["net_sent"]) == (10, 20)


def test_efa_bytes_have_fields_of_their_own(machine: Machine) -> None:
    folder = "/sys/class/infiniband/rdmap0s6/ports/1/hw_counters"
    machine.write(f"{folder}/rx_bytes", "1000\n")
    machine.write(f"{folder}/tx_bytes", "2000\n")
    sampler = machine.sampler()
    machine.write(f"{folder}/rx_bytes", "1500\n")
    machine.write(f"{folder}/tx_bytes", "2700\n")
    fields = sampler.sample()
    assert (fields["efa_received"], fields["efa_sent"]) == (500, 700)


def test_a_counter_that_restarts_or_appears_counts_from_there(machine: Machine) -> None:
    machine.network(eth0=(100, 100))
    sampler = machine.sampler()
    machine.network(eth0=(10, 110), eth1=(5000, 5000))
    first = sampler.sample()
    machine.network(eth0=(15, 115), eth1=(5001, 5002))
    second = sampler.sample()
    assert (first["net_received"], first["net_sent"]) == (0, 10)
    assert (second["net_received"], second["net_sent"]) == (6, 7)


def test_a_counter_that_was_unreadable_once_loses_nothing(machine: Machine) -> None:
    machine.network(eth0=(100, 100))
    sampler = machine.sampler()
    machine.write("/proc/net/dev", "")
    assert "net_received" not in sampler.sample()
    machine.network(eth0=(150, 101))
    assert sampler.sample()["net_received"] == 50


def test_processes_of_the_workers_are_their_descendants_and_their_sessions(machine: Machine) -> None:
    machine.process(10, 1, 10, 1.0, 0.5, pages=(100, 40))  # a worker
    machine.process(11, 10, 10, 2.0, pages=(50, 30))  # a process of its loader
    machine.process(12, 1, 10, 0.25, pages=(20, 10))  # its parent has exited
    machine.process(13, 11, 13, 0.25, pages=(20, 60))  # it started a session of its own
    machine.process(20, 1, 20, 9.0, pages=(900, 900))  # another program
    sampler = machine.sampler(workers=(10,))
    machine.process(10, 1, 10, 1.5, 0.75, 2.5, 0.5, pages=(100, 40))  # 11 and its child have exited, with 3 s of work
    for gone in (11, 13):
        for name in ("stat", "statm"):
            (machine.root / f"proc/{gone}/{name}").unlink()
    fields = sampler.sample()
    assert fields["workers_cpu_s"] == (0.5 + 0.25 + 3.0) - (2.0 + 0.25)
    assert fields["workers_memory"] == (60 + 10 + 40) * PAGE


def test_memory_of_the_workers_is_absent_after_their_exit(machine: Machine) -> None:
    machine.process(20, 1, 20, 9.0)
    fields = machine.sampler(workers=()).sample()
    assert "workers_memory" not in fields
    assert fields["workers_cpu_s"] == 0


BAD = ["", "\n", "nonsense", "cpu", "cpu0 a b c d e f g h\ncpu x", "-" * 70_000, "\x00\x01\xff", "9" * 6000]
FILES = [
    *("stat", "meminfo", "diskstats", "net/dev", "self/cgroup", "self/mountinfo", "self/mountstats", "10/stat"),
    *("10/statm", "fs/lustre/llite/fsx-1/stats"),
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_malformed_files_only_remove_their_fields(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path)
    for name in FILES:
        machine.write(f"/proc/{name}", text)
    sampler = machine.sampler({"train": {"TrainingInputMode": "Pipe"}, "odd": 3, "../x": {}, "": {}}, workers=(10,))
    machine.write("/proc/stat", STAT)
    fields = sampler.sample()
    assert fields["cores"] == 2
    assert {name for name in fields if name.startswith("channel_")} == {"channel_train_mode", "channel_odd_mode"}
    assert not {name for name in fields if "memory" in name or "disk" in name} - {"workers_memory"}


def test_without_any_file_the_window_and_the_cores_remain(tmp_path: Path) -> None:
    assert set(Machine(tmp_path).sampler().sample()) == {"window", "cores", "workers_cpu_s"}


def test_a_named_pipe_without_a_writer_does_not_block(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "proc").mkdir()
    os.mkfifo(tmp_path / "proc/meminfo")
    assert "memory_used" not in machine.sampler().sample()
