"""The plan compares what an earlier run read with what the storage of the channels delivers."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.input_record import record_input
from smdp_launch.jobs.measured_input import measured_input
from smdp_launch.jobs.records.history import LOCAL, launches, record_input_rate, record_launch
from smdp_launch.jobs.records.lines import InputRate
from smdp_launch.sizing.need import MeasuredInput
from tests.conftest import JOB, Command, write_job
from tests.support.numbers.run_events import Step, metrics_of, run_events

VPC = "network: {subnets: [subnet-0a1b2c3d4e5f60718], security_groups: [sg-0a1b2c3d4e5f60718]}\n"
FSX = "fsx: fs-0123456789abcdef0, path: /abcdefgh/data"
CHANNEL = 'train: {s3: "s3://bucket/train"}'
#: Half of each step is the wait for input: without it, the job reads twice as much.
READS: Step = {"input": 0.1, "forward": 0.1, "load_batches": 1, "load_s": 0.2, "load_bytes": 20e6, "load_workers": 1}
NOW = datetime(2026, 11, 26, tzinfo=timezone.utc)


def run_of(rate: float, hosts: int = 2, **channels: float) -> MeasuredInput:
    return MeasuredInput("small-run", False, rate, hosts, channels)


def warnings(
    folder: Path, channels: str, measured: MeasuredInput | None, *settings: str, local: LocalRequest | None = None
) -> list[Diagnostic]:
    text = JOB.replace(CHANNEL, channels)
    path = write_job(folder, text + VPC if "fsx:" in channels or "efs:" in channels else text)
    found = check_job(path, local, settings=settings, environ={}, measured=measured).diagnostics
    return [one for one in found if one.code in ("SMDP418", "SMDP428")]


@pytest.mark.parametrize(
    ("channels", "limit", "key"),
    [
        (f"train: {{{FSX}, throughput_mb_s: 600}}", 600, "600"),
        (f"train: {{{FSX}, deployment_type: SCRATCH_2, capacity_gib: 1200}}", 240, "1200"),
        (
            f"train: {{{FSX}, deployment_type: PERSISTENT_2, throughput_per_unit: 250, capacity_gib: 4800}}",
            1200,
            "4800",
        ),
        ("train: {efs: fs-0123456789abcdef0, path: /data}", 1048, "fs-0123456789abcdef0"),
    ],
)
def test_need_above_the_limit_of_the_storage_is_a_warning_at_its_key(
    tmp_path: Path, channels: str, limit: float, key: str
) -> None:
    assert warnings(tmp_path, channels, run_of(limit)) == []
    (found,) = warnings(tmp_path, channels, run_of(limit + 1))
    assert (found.code, found.severity.value, found.text) == ("SMDP428", "warning", key)
    assert f"channel train needs {limit + 1:,} MB/s on 2 hosts (small-run measured" in found.message


def test_need_grows_with_the_planned_hosts(tmp_path: Path) -> None:
    channels = f"train: {{{FSX}, throughput_mb_s: 600}}"
    measured = run_of(200, hosts=1)
    assert warnings(tmp_path, channels, measured, "compute.instance_count=3") == []
    (found,) = warnings(tmp_path, channels, measured, "compute.instance_count=4")
    assert "needs 800 MB/s on 4 hosts (small-run measured 200 MB/s on 1 host)" in found.message


def test_fix_names_the_smallest_capacity_that_carries_the_need(tmp_path: Path) -> None:
    (found,) = warnings(tmp_path, f"train: {{{FSX}, deployment_type: SCRATCH_2, capacity_gib: 1200}}", run_of(1000))
    assert found.help.startswith("increase the file system to 7200 GiB; `smdp-launch size ")
    assert "--hosts 2` compares the storages" in found.help


@pytest.mark.parametrize("mode", ["FastFile", "Pipe"])
def test_small_objects_limit_what_s3_delivers(tmp_path: Path, mode: str) -> None:
    channels = f'train: {{s3: "s3://bucket/train", mode: {mode}}}'
    small = run_of(5500 * 10 / 1e6 + 0.001)  # its local data is one file of ten bytes
    (found,) = warnings(tmp_path, channels, small)
    assert "S3 answers 5,500 GET requests a second for a prefix" in found.message


def test_network_of_the_instance_type_limits_every_remote_storage(tmp_path: Path) -> None:
    settings = ("compute.instance_type=ml.p3.16xlarge",)
    channels = f"train: {{{FSX}}}"
    assert warnings(tmp_path, channels, run_of(2 * 3125), *settings) == []
    (found,) = warnings(tmp_path, channels, run_of(2 * 3125 + 2), *settings)
    assert "the network of ml.p3.16xlarge carries 3,125 MB/s for each host" in found.message
    assert warnings(tmp_path, CHANNEL, run_of(1e6), *settings) == []  # File mode reads the disk


def test_local_run_and_job_without_a_measured_run_have_no_warning(tmp_path: Path) -> None:
    channels = f"train: {{{FSX}, throughput_mb_s: 600}}"
    assert warnings(tmp_path, channels, None) == []
    assert warnings(tmp_path, channels, run_of(1e6), local=LocalRequest()) == []


def test_several_storages_need_the_counted_bytes_of_each_channel(tmp_path: Path) -> None:
    channels = f'train: {{{FSX}, throughput_mb_s: 600}}\n  more: {{s3: "s3://bucket/more"}}'
    assert warnings(tmp_path, channels, run_of(1e6)) == []
    (found,) = warnings(tmp_path, channels, run_of(1e6, train=601, more=1))
    assert "channel train needs 601 MB/s" in found.message
    same = f"train: {{{FSX}, throughput_mb_s: 600}}\n  more: {{{FSX}}}"
    (found,) = warnings(tmp_path, same, run_of(601))
    assert "channels train and more need 601 MB/s" in found.message


def test_measured_rate_replaces_the_warning_of_many_hosts_on_efs(tmp_path: Path) -> None:
    channels, hosts = "train: {efs: fs-0123456789abcdef0, path: /data}", "compute.instance_count=8"
    assert [one.code for one in warnings(tmp_path, channels, None, hosts)] == ["SMDP418"]
    assert warnings(tmp_path, channels, run_of(100), hosts) == []
    assert [one.code for one in warnings(tmp_path, channels, run_of(1000), hosts)] == ["SMDP428"]


@pytest.fixture
def launched(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose job has an FSx channel of 240 MB/s, and two runs: on AWS, and later a local one."""
    monkeypatch.chdir(job_folder)
    channel = f"train: {{{FSX}, deployment_type: SCRATCH_2, capacity_gib: 1200}}"
    (job_folder / "job.yaml").write_text(JOB.replace(CHANNEL, channel) + VPC)
    record_launch("small-aws", "us-east-1", "job.yaml", "", NOW)
    record_launch("small-local", LOCAL, "job.yaml", "", NOW)
    return job_folder


def test_plan_and_validate_warn_after_a_run_that_read_more(launched: Path, smdp_launch: Command) -> None:
    assert "SMDP428" not in smdp_launch("plan").stderr
    record_input("small-local", metrics_of(run_events(lambda _: READS)))
    for command in ("plan", "validate"):
        ran = smdp_launch(command)
        assert ran.returncode == ExitCode.OK
        expected = "channel train needs 800 MB/s on 2 hosts (small-local measured 800 MB/s on 2 local hosts)"
        assert f"warning[SMDP428]: {expected}" in ran.stderr
    (shown,) = json.loads(smdp_launch("validate", "--json").stdout)["diagnostics"]
    assert shown["code"] == "SMDP428"
    assert "(ro, 240 MB/s)" in smdp_launch("plan").stdout
    assert "SMDP428" not in smdp_launch("plan", "--set", "silence=[SMDP428]").stderr


def test_run_on_aws_counts_before_a_later_local_run(launched: Path) -> None:
    record_input("small-local", metrics_of(run_events(lambda _: READS)))
    assert measured_input(Path("job.yaml")) == MeasuredInput("small-local", True, 800, 2)
    record_input("small-aws", metrics_of(run_events(lambda _: READS, resources={"channel_train_bytes": 1e9})))
    # Each host counts 200 MB/s, and waits half of the time.
    assert measured_input(Path("job.yaml")) == MeasuredInput("small-aws", False, 800, 2, {"train": 800})
    assert measured_input(Path("other.yaml")) is None


def test_run_that_shows_nothing_is_not_recorded(launched: Path) -> None:
    record_input("small-local", metrics_of([]))
    record_input("small-local", metrics_of(run_events(lambda _: READS, windows=2)))
    record_input("elsewhere", metrics_of(run_events(lambda _: READS)))
    assert measured_input(Path("job.yaml")) is None


def test_history_has_one_line_for_the_same_rate_and_older_readers_skip_it(launched: Path) -> None:
    for _ in range(3):
        record_input("small-local", metrics_of(run_events(lambda _: READS)))
    lines = (launched / ".smdp/history.jsonl").read_text().splitlines()
    assert len(lines) == 3
    assert [one.job for one in launches()] == ["small-aws", "small-local"]


@pytest.mark.parametrize(("rate", "hosts"), [(float("nan"), 2), (-1.0, 2), (0.0, 2), (5.0, 0), (1e999, 2)])
def test_edited_rate_is_ignored(launched: Path, rate: float, hosts: int) -> None:
    record_input_rate(InputRate("small-local", rate, hosts))
    assert measured_input(Path("job.yaml")) is None


def test_description_of_the_file_system_is_not_sent(launched: Path, smdp_launch: Command) -> None:
    request = json.loads(smdp_launch("plan", "--request").stdout)
    (channel,) = request["InputDataConfig"]
    assert channel["DataSource"]["FileSystemDataSource"] == {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemAccessMode": "ro",
        "FileSystemType": "FSxLustre",
        "DirectoryPath": "/abcdefgh/data",
    }
