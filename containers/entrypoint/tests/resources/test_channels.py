"""The mode of each input channel, and the bytes read from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from entrypoint_support.machine import Machine

FILE = {"TrainingInputMode": "File"}
FAST_FILE = {"TrainingInputMode": "FastFile"}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def lustre(machine: Machine, count: int, folder: str = "/proc/fs/lustre/llite/abcdwbmv-ffff9f2e7c4d1000") -> None:
    machine.write(
        f"{folder}/stats",
        "snapshot_time             1694.5 secs.nsecs\n"
        f"read_bytes                12 samples [bytes] 4096 1048576 {count} 99999999\n"
        "write_bytes               2 samples [bytes] 1 2 777\nopen                      5 samples [reqs]\n",
    )


def nfs(machine: Machine, count: int, point: str) -> None:
    machine.write(
        "/proc/self/mountstats",
        "device proc mounted on /proc with fstype proc\n"
        "device fs-9:/ mounted on /mnt/other with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3 4 5 6 7 8\n"
        f"device fs-1.efs:/ mounted on {point} with fstype nfs4 statvers=1.1\n\topts:\trw,vers=4.1\n\tage:\t5\n"
        f"\tevents:\t1 2 3\n\tbytes:\t11 22 33 44 {count} 66 77 88\n\tRPC iostats version: 1.1\n",
    )


def counters(machine: Machine, value: Any) -> None:
    machine.write(
        str((machine.tree.input / ".smdp_channels.json").relative_to(machine.root)),
        value if isinstance(value, str) else json.dumps(value),
    )


@pytest.mark.parametrize("folder", ["/proc/fs/lustre/llite", "/sys/kernel/debug/lustre/llite"])
def test_lustre_channel_has_the_bytes_of_its_mount(machine: Machine, folder: str) -> None:
    machine.mounts((machine.channel("train"), "lustre", "10.0.1.5@tcp:/abcdwbmv/data"))
    lustre(machine, 1000, f"{folder}/abcdwbmv-ffff9f2e7c4d1000")
    lustre(machine, 77, f"{folder}/other-ffff9f2e7c4d1001")
    sampler = machine.sampler({"train": FILE})
    lustre(machine, 5000, f"{folder}/abcdwbmv-ffff9f2e7c4d1000")
    fields = sampler.sample()
    assert (fields["channel_train_mode"], fields["channel_train_bytes"]) == ("FSxLustre", 4000)


def test_two_channels_of_one_lustre_file_system_count_once(machine: Machine) -> None:
    machine.mounts(
        (machine.channel("train"), "lustre", "10.0.1.5@tcp:/abcdwbmv"),
        (machine.channel("val"), "lustre", "10.0.1.5@tcp:/abcdwbmv"),
    )
    lustre(machine, 1000)
    sampler = machine.sampler({"train": FILE, "val": FILE})
    lustre(machine, 1500)
    fields = sampler.sample()
    assert (fields["channel_train_bytes"], fields["channel_val_mode"]) == (500, "FSxLustre")
    assert "channel_val_bytes" not in fields


def test_lustre_mounts_with_the_same_name_have_no_bytes(machine: Machine) -> None:
    machine.mounts((machine.channel("train"), "lustre", "10.0.1.5@tcp:/fsx"))
    lustre(machine, 1, "/proc/fs/lustre/llite/fsx-1")
    lustre(machine, 2, "/proc/fs/lustre/llite/fsx-2")
    fields = machine.sampler({"train": FILE}).sample()
    assert fields["channel_train_mode"] == "FSxLustre"
    assert "channel_train_bytes" not in fields


def test_efs_channel_has_the_bytes_that_the_server_sent(machine: Machine) -> None:
    machine.mounts((machine.channel("train"), "nfs4", "fs-1.efs:/"))
    nfs(machine, 1000, machine.channel("train"))
    sampler = machine.sampler({"train": FILE})
    nfs(machine, 1234, machine.channel("train"))
    fields = sampler.sample()
    assert (fields["channel_train_mode"], fields["channel_train_bytes"]) == ("EFS", 234)


def test_fuse_channel_without_counters_has_only_a_mode(machine: Machine) -> None:
    machine.mounts((machine.channel("train"), "fuse.mountpoint-s3", "s3"))
    fields = machine.sampler({"train": FAST_FILE, "val": FILE}).sample()
    assert (fields["channel_train_mode"], fields["channel_val_mode"]) == ("FastFile", "File")
    assert not [name for name in fields if name.endswith("_bytes")]


def test_a_mount_of_the_whole_tree_is_no_channel(machine: Machine) -> None:
    machine.mounts((str(machine.tree.root), "nfs4", "home:/"), ("/", "fuse.fuse-overlayfs", "overlay"))
    assert machine.sampler({"train": FILE}).sample()["channel_train_mode"] == "File"


def test_counter_file_gives_mode_and_bytes_from_the_start_of_the_job(machine: Machine) -> None:
    sampler = machine.sampler({"train": FAST_FILE, "pipe": {"TrainingInputMode": "Pipe"}})
    counters(machine, {"train": {"mode": "FastFile", "bytes": 123}, "pipe": {"mode": "Pipe", "bytes": 7}, "x": {}})
    first = sampler.sample()
    counters(machine, {"train": {"mode": "FastFile", "bytes": 200}, "pipe": {"mode": "Pipe", "bytes": 7}})
    second = sampler.sample()
    assert (first["channel_train_bytes"], first["channel_pipe_bytes"]) == (123, 7)
    assert (second["channel_train_bytes"], second["channel_pipe_bytes"]) == (77, 0)
    assert "channel_x_mode" not in first


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "3", '"x"', "[" * 100_000, '{"train": 3}', '{"train": {"mode": "FastFile"}}',
        '{"train": {"mode": "FastFile", "bytes": -1}}', '{"train": {"mode": "FastFile", "bytes": 1e999}}',
        '{"train": {"mode": "FastFile", "bytes": true}}', '{"train": {"mode": ["x"], "bytes": 1}}',
        '{"train": {"mode": "Tape", "bytes": 1}}', '{"train": {"mode": "FastFile", "bytes": ' + "9" * 5000 + "}}",
    ],
    ids=range(14),
)  # fmt: skip
def test_malformed_counter_file_is_ignored(machine: Machine, text: str) -> None:
    sampler = machine.sampler({"train": FAST_FILE})
    counters(machine, text)
    fields = sampler.sample()
    assert fields["channel_train_mode"] == "FastFile"
    assert "channel_train_bytes" not in fields
