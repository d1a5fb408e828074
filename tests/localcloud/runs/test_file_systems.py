"""Channels from FSx and EFS: folders of this machine, which all hosts of a job share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.catalog.local_cloud import THIS_MACHINE
from tests.support.isolation import needs_namespaces
from tests.support.jobs.hosts import seen
from tests.support.services.cloud import Cloud

FSX, EFS = "fs-0123456789abcdef0", "fs-0fedcba987654321f"

SHARES = """
    import json, os, pathlib, time
    data, out = (pathlib.Path(os.environ[f"SM_CHANNEL_{name}"]) for name in ("DATA", "OUT"))
    me = os.environ["SM_CURRENT_HOST"]
    (out / me).write_text("was here")
    while len(list(out.iterdir())) < 2:
        time.sleep(0.02)
    try:
        (data / "mine").write_text("x")
        refused = None
    except OSError as error:
        refused = error.strerror
    root = pathlib.Path(os.environ.get("SMDP_ML_ROOT", "/opt/ml"))
    print("looks", json.dumps({
        "data": sorted(os.listdir(data)), "out": sorted(os.listdir(out)), "refused": refused,
        "config": json.loads((root / "input/config/inputdataconfig.json").read_text()),
    }), flush=True)
"""


def channel(name: str, system: str, path: str, access: str = "ro") -> dict[str, Any]:
    source = {
        "FileSystemId": system,
        "FileSystemType": "FSxLustre" if system == FSX else "EFS",
        "DirectoryPath": path,
        "FileSystemAccessMode": access,
    }
    return {"ChannelName": name, "DataSource": {"FileSystemDataSource": source}}


@pytest.fixture
def systems(both_clouds: Cloud, tmp_path: Path) -> Iterator[Path]:
    """A folder with `lustre` and `nfs`, which the account of the cloud names."""
    for folder in ("lustre/images", "nfs/results"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "lustre/images/one").touch()
    account = both_clouds.state_dir / "account.yaml"
    account.write_text(
        f"fsx: {{{FSX}: {{mount_name: abcd1234, folder: {tmp_path}/lustre}}, fs-00000001: {{}}}}\n"
        f"efs: {{{EFS}: {{folder: {tmp_path}/nfs}}}}\n"
    )
    yield tmp_path
    account.unlink()


def test_hosts_share_the_folders_of_a_job(either_cloud: Cloud, systems: Path) -> None:
    inputs = [channel("data", FSX, "/abcd1234/images"), channel("out", EFS, "/results", "rw")]
    job = either_cloud.run("shares", SHARES, hosts=2, InputDataConfig=inputs)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    is_tree = either_cloud.level == "tree"
    hosts = seen(either_cloud, "shares")
    assert sorted(hosts) == ["algo-1", "algo-2"]
    for host in hosts.values():
        assert host["refused"] == (None if is_tree else "Read-only file system")
        assert host["data"] == ["mine", "one"] if is_tree else ["one"]
        assert host["out"] == ["algo-1", "algo-2"]
        assert host["config"]["data"] == {
            "TrainingInputMode": "File",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        }
    # The folders belong to the user: they stay unchanged when the job ends.
    assert (systems / "lustre/images/one").exists()
    assert (systems / "nfs/results/algo-2").read_text() == "was here"


def test_file_system_of_this_machine_needs_no_account_file(either_cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given/file").touch()
    script = "import os; print(sorted(os.listdir(os.environ['SM_CHANNEL_DATA'])))"
    job = either_cloud.run("machine", script, InputDataConfig=[channel("data", THIS_MACHINE, f"{tmp_path}/given")])
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert any("['file']" in line for line in either_cloud.log("machine"))


@pytest.mark.parametrize(("name", "path"), [("gone", "/abcd1234/gone"), ("file", "/abcd1234/images/one")])
def test_missing_folder_fails_the_job(either_cloud: Cloud, systems: Path, name: str, path: str) -> None:
    job = either_cloud.run(name, "", InputDataConfig=[channel("data", FSX, path)])
    place = systems / "lustre" / path.removeprefix("/abcd1234/")
    assert job["FailureReason"] == (
        f"ClientError: Unable to mount file system: {FSX}, directory path: {path}. Locally that is {place}, "
        "which is not a folder: create it, or name another path."
    )


@pytest.mark.parametrize(("name", "path"), [("circle", "/circle"), ("long", f"/{'x' * 300}"), ("nul", "/a\0b")])
def test_invalid_path_fails_the_job(either_cloud: Cloud, systems: Path, name: str, path: str) -> None:
    (systems / "nfs/circle").symlink_to("circle")
    job = either_cloud.run(name, "", InputDataConfig=[channel("data", EFS, path)])
    head = f"ClientError: Unable to mount file system: {EFS}, directory path: {path}. "
    assert job["FailureReason"].startswith(head)
    assert job["FailureReason"].endswith("Name another path.")


LISTS = "import os; print('lists', sorted(os.listdir(os.environ['SM_CHANNEL_DATA'])))"


def test_link_out_of_the_file_system_fails_the_job(either_cloud: Cloud, systems: Path) -> None:
    (systems / "secret").mkdir()
    (systems / "lustre/images/link").symlink_to(systems / "secret")
    job = either_cloud.run("link", LISTS, InputDataConfig=[channel("data", FSX, "/abcd1234/images/link")])
    assert job["FailureReason"] == (
        f"ClientError: Unable to mount file system: {FSX}, directory path: /abcd1234/images/link. A link in it leads "
        f"out of {systems}/lustre, to {systems}/secret: name a folder in the file system."
    )
    assert not any("lists" in line for line in either_cloud.log("link"))


def test_a_link_within_the_file_system_is_followed(either_cloud: Cloud, systems: Path) -> None:
    (systems / "lustre/latest").symlink_to("images")
    job = either_cloud.run("latest", LISTS, InputDataConfig=[channel("data", FSX, "/abcd1234/latest")])
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert any("lists ['one']" in line for line in either_cloud.log("latest"))


MOUNTS = """
import os, sys
from pathlib import Path
from smdp_launch.localcloud.isolation import namespaces
root = Path(sys.argv[1])
mounts = (namespaces.Mount(root / sys.argv[2], root / "ml/data", sys.argv[3] == "ro"),)
namespaces.enter()
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
namespaces.call("unshare", 0x00020000)
namespaces.mount(None, "/", None, 16384 | 1 << 18)
namespaces.mount_shared(namespaces.View("host", root / "ml", root, root, root, (), mounts))
print(os.listdir(root / "ml/data"))
"""


@needs_namespaces
@pytest.mark.parametrize("access", ["ro", "rw"])
def test_link_that_replaces_a_checked_folder_is_not_mounted(tmp_path: Path, access: str) -> None:
    for folder in ("ml/data", "outside/images", "inside/images"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "outside/images/secret").touch()
    (tmp_path / "inside/images/one").touch()

    def mounted() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", MOUNTS, str(tmp_path), "inside/images", access]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert mounted().stdout == "['one']\n"
    (tmp_path / "inside").rename(tmp_path / "before")
    (tmp_path / "inside").symlink_to("outside")
    swapped = mounted()
    assert swapped.stdout == ""
    assert f"Not a directory: '{tmp_path}/inside/images'" in swapped.stderr


REFUSED = [
    (channel("data", EFS, "/../etc"), "DirectoryPath '/../etc' of file system .* must begin with / and have no"),
    (channel("data", EFS, "/\udcff"), r"DirectoryPath '/\\udcff' of file system .* is not Unicode"),
    (channel("data", FSX, "/images"), f"must begin with /abcd1234, the mount name of {FSX}"),
    (channel("data", "fs-00000002", "/"), r"File system fs-00000002 has no local folder: .*/account.yaml: efs: \{"),
    (channel("data", EFS, "/") | {"InputMode": "FastFile"}, "must be File, not FastFile"),
]


@pytest.mark.parametrize(("one", "message"), REFUSED)
def test_invalid_file_system_channel_is_refused(
    both_clouds: Cloud, systems: Path, one: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClientError, match=message) as caught:
        both_clouds.sagemaker.create_training_job(**both_clouds.request("refused", InputDataConfig=[one]))
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_file_system_with_job_wide_fastfile_mode_is_refused(both_clouds: Cloud, systems: Path) -> None:
    fast = {"TrainingImage": "image", "TrainingInputMode": "FastFile"}
    one = channel("data", EFS, "/results")
    with pytest.raises(ClientError, match="input mode of channel 'data', a file system, must be File, not FastFile"):
        both_clouds.sagemaker.create_training_job(
            **both_clouds.request("fast", AlgorithmSpecification=fast, InputDataConfig=[one])
        )
    as_files = both_clouds.run("fast", "", AlgorithmSpecification=fast, InputDataConfig=[one | {"InputMode": "File"}])
    assert as_files["TrainingJobStatus"] == "Completed", as_files.get("FailureReason")


def test_a_known_file_system_without_a_folder_is_refused(both_clouds: Cloud, systems: Path) -> None:
    one = json.loads(json.dumps(channel("data", FSX, "/fsx")).replace(FSX, "fs-00000001"))
    with pytest.raises(ClientError, match="File system fs-00000001 has no local folder"):
        both_clouds.sagemaker.create_training_job(**both_clouds.request("refused", InputDataConfig=[one]))
