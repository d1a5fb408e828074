"""`launch --local` of a job with FSx and EFS channels, which are simulated by folders that the user names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.source.scan import LocalData, check_folder, scan_data
from tests.conftest import JOB, Command, clean_environment, write_job

RUN = ["launch", "--local", "--hosts", "2", "--workers-per-host", "1"]
SYSTEMS = """\
channels:
  train: {fsx: fs-0123456789abcdef0, path: /abcd1234/images}
  notes: {efs: fs-0fedcba987654321f, path: /, access: rw}
network: {subnets: [subnet-0a1b2c3d4e5f60718], security_groups: [sg-0a1b2c3d4e5f60718]}
silence: [SMDP418]
"""
SCRIPT = """
import os, pathlib
print("train", sorted(os.listdir(os.environ["SM_CHANNEL_TRAIN"])))
(pathlib.Path(os.environ["SM_CHANNEL_NOTES"]) / os.environ["SM_CURRENT_HOST"]).touch()
"""


@pytest.fixture
def folder(job_folder: Path) -> Path:
    """Of a job with two file systems, and data for them beside it."""
    written = JOB.replace('channels:\n  train: {s3: "s3://bucket/train"}\n', SYSTEMS)
    write_job(job_folder, written.replace("local: {channels: {train: data}}\n", ""), SCRIPT)
    (job_folder / "lustre/images").mkdir(parents=True)
    (job_folder / "lustre/images/one").touch()
    (job_folder / "nfs").mkdir()
    return job_folder


def name_folders(folder: Path, lustre: str) -> None:
    state = folder / ".smdp/local"
    state.mkdir(parents=True)
    (state / "account.yaml").write_text(
        f"fsx: {{fs-0123456789abcdef0: {{mount_name: abcd1234, folder: {lustre}}}}}\n"
        f"efs: {{fs-0fedcba987654321f: {{folder: {folder}/nfs}}}}\n"
    )


@pytest.mark.runs
def test_folders_named_for_channels_are_mounted(folder: Path, smdp_launch: Command) -> None:
    ran = smdp_launch(*RUN, "--data", "train=lustre/images", "--data", "notes=nfs")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.count("train ['one']") == 2
    assert {one.name for one in (folder / "nfs").iterdir()} == {"algo-1", "algo-2"}


def test_folders_named_for_file_systems_are_mounted(folder: Path, smdp_launch: Command) -> None:
    name_folders(folder, "../../lustre")
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.count("train ['one']") == 2
    assert {one.name for one in (folder / "nfs").iterdir()} == {"algo-1", "algo-2"}


def test_each_channel_without_folder_is_reported(folder: Path, smdp_launch: Command) -> None:
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stderr.count("error[SMDP407]") == 2


def test_missing_folder_is_reported_at_channel_path(folder: Path, smdp_launch: Command) -> None:
    name_folders(folder, f"{folder}/elsewhere")
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    message = f"error[SMDP404]: local data of channel train, {folder}/elsewhere/images: it does not exist"
    assert message in ran.stderr.replace("\n", "")
    lines = (folder / "job.yaml").read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if "/abcd1234/images" in line)
    assert f"job.yaml:{number}:" in ran.stderr
    assert "/abcd1234/images" in ran.stderr


def test_wrong_mount_name_is_reported_before_the_job_is_created(folder: Path, smdp_launch: Command) -> None:
    name_folders(folder, "../../lustre")
    account = folder / ".smdp/local/account.yaml"
    account.write_text(account.read_text().replace("abcd1234", "other"))
    ran = smdp_launch(*RUN, "--dry-run")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP412]" in ran.stderr
    assert 'has the mount name "other" in the local cloud, but the path begins with "abcd1234"' in ran.stderr
    assert "mount_name: abcd1234" in ran.stderr
    assert "/abcd1234/images" in ran.stderr
    # With --data the channel needs no file system.
    ran = smdp_launch(*RUN, "--dry-run", "--data", "train=lustre/images")
    assert ran.returncode == ExitCode.OK, ran.stderr


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/abcd1234/images/../images", "cannot contain `..`"),
        ("/abcd1234/out", "a symbolic link in the path leads out of"),
    ],
)
def test_path_refused_by_local_cloud_is_reported_before_the_job_is_created(
    folder: Path, smdp_launch: Command, path: str, problem: str
) -> None:
    name_folders(folder, f"{folder}/lustre")
    (folder / "lustre/out").symlink_to(folder / "data")
    job = folder / "job.yaml"
    job.write_text(job.read_text().replace("/abcd1234/images", path))
    ran = smdp_launch(*RUN, "--dry-run")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP405]" in ran.stderr
    assert problem in " ".join(ran.stderr.split())


@pytest.mark.runs
def test_path_may_start_with_two_slashes(folder: Path, smdp_launch: Command) -> None:
    name_folders(folder, "../../lustre")
    job = folder / "job.yaml"
    job.write_text(job.read_text().replace("/abcd1234/images", "//abcd1234/images"))
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.count("train ['one']") == 2


@pytest.mark.runs
def test_this_machine_needs_no_account_entry(folder: Path, smdp_launch: Command) -> None:
    job = folder / "job.yaml"
    written = job.read_text().replace("fs-0123456789abcdef0", "fs-00000000000000000").replace("/abcd1234", "/LUSTRE")
    written = written.replace("fs-0fedcba987654321f, path: /", f"fs-00000000000000000, path: {folder}/nfs")
    job.write_text(written.replace("/LUSTRE", f"{folder}/lustre"))
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stdout.count("train ['one']") == 2
    assert {one.name for one in (folder / "nfs").iterdir()} == {"algo-1", "algo-2"}


def test_path_on_this_machine_has_no_mount_name(folder: Path, smdp_launch: Command) -> None:
    job = folder / "job.yaml"
    job.write_text(
        job.read_text().replace("fs-0123456789abcdef0, path: /", "fs-00000000000000000, path: /not-there-at-all/")
    )
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "SMDP412" not in ran.stderr
    assert "/not-there-at-all/abcd1234/images: it does not exist" in ran.stderr.replace("\n", "")


@pytest.mark.parametrize("kind", ["fsx", "efs"])
def test_account_entry_for_this_machine_is_refused(folder: Path, smdp_launch: Command, kind: str) -> None:
    state = folder / ".smdp/local"
    state.mkdir(parents=True)
    (state / "account.yaml").write_text(f"{kind}: {{fs-00000000000000000: {{folder: {folder}/nfs}}}}\n")
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert f"account.yaml cannot be used: {kind}.fs-00000000000000000" in ran.stderr
    assert "this id means this machine's own files" in ran.stderr


def test_fsx_and_efs_with_same_id_are_two_file_systems(folder: Path, smdp_launch: Command) -> None:
    name_folders(folder, "../../lustre")
    account = folder / ".smdp/local/account.yaml"
    account.write_text(account.read_text().replace("fs-0fedcba987654321f", "fs-0123456789abcdef0"))
    job = folder / "job.yaml"
    job.write_text(job.read_text().replace("fs-0fedcba987654321f", "fs-0123456789abcdef0"))
    ran = smdp_launch(*RUN, "--dry-run")
    assert ran.returncode == ExitCode.OK, ran.stderr


@pytest.mark.parametrize(("data", "reason"), [("train/data", "Not a directory"), ("empty", "it is empty")])
def test_empty_folder_as_file_system_is_refused(folder: Path, smdp_launch: Command, data: str, reason: str) -> None:
    (folder / "train").mkdir()
    (folder / "train/data").touch()
    (folder / "empty").mkdir()
    ran = smdp_launch(*RUN, "--data", f"train={data}", "--data", "notes=nfs")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP405]" in ran.stderr
    assert reason in ran.stderr


def test_hosts_without_namespaces_warn_that_data_is_writable(folder: Path, smdp_launch: Command) -> None:
    ran = smdp_launch(
        *RUN,
        *("--data", "train=lustre/images", "--data", "notes=nfs", "--dry-run"),
        env=clean_environment(SMDP_LOCAL_ISOLATION="tree", HOME=os.environ["HOME"], COLUMNS="200"),
    )
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "access of train: the hosts can write to the folders" in ran.stdout


def test_error_in_account_is_reported(folder: Path, smdp_launch: Command) -> None:
    name_folders(folder, "[]")
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "account.yaml cannot be used: fsx.fs-0123456789abcdef0.folder" in ran.stderr


def test_unknown_home_folder_in_account_is_reported(folder: Path, smdp_launch: Command) -> None:
    name_folders(folder, "~nosuchperson/lustre")
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "account.yaml cannot be used: fsx.fs-0123456789abcdef0.folder" in ran.stderr
    assert "~nosuchperson is not the home folder of a known user" in ran.stderr


@pytest.mark.parametrize("named", ["flag", "account"])
def test_too_long_path_is_reported(folder: Path, smdp_launch: Command, named: str) -> None:
    name_folders(folder, "x" * 300 if named == "account" else "../../lustre")
    ran = smdp_launch(*RUN, *(["--data", f"train={'x' * 300}"] if named == "flag" else []))
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED, ran.stderr
    assert "error[SMDP405]" in ran.stderr
    assert "File name too long" in ran.stderr.replace("\n", "")


def test_too_long_path_of_s3_channel_is_reported(job_folder: Path, smdp_launch: Command) -> None:
    write_job(job_folder, JOB, SCRIPT)
    ran = smdp_launch(*RUN, "--data", f"train={'x' * 300}")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED, ran.stderr
    assert "File name too long" in ran.stderr.replace("\n", "")


def test_file_system_folder_with_non_utf8_name_is_reported(folder: Path, smdp_launch: Command) -> None:
    odd = folder / os.fsdecode(b"\xff/data")
    odd.mkdir(parents=True)
    (odd / "one").touch()
    (folder / "plain").symlink_to(odd)
    for name in (odd, folder / "plain"):
        ran = smdp_launch(*RUN, "--data", f"train={name}", "--data", "notes=nfs")
        assert ran.returncode == ExitCode.JOB_FILE_REFUSED, ran.stderr
        assert "error[SMDP405]" in ran.stderr
        assert "its name is not UTF-8" in ran.stderr.replace("\n", "")


@contextmanager
def unsearchable(folder: Path) -> Iterator[None]:
    """Make the folder unsearchable, and run as a user to whom this applies."""
    user = os.geteuid()
    folder.chmod(0)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


@pytest.mark.parametrize("look", [scan_data, partial(check_folder, may_be_empty=True)])
def test_folder_below_unsearchable_folder_is_unusable(folder: Path, look: Callable[[Path], LocalData]) -> None:
    (folder / "closed/data").mkdir(parents=True)
    with unsearchable(folder / "closed"):
        found = look(folder / "closed/data")
    assert (found.exists, found.problem) == (True, "Permission denied")
