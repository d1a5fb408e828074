"""Unpacking untrusted archives: unsafe members and unusual sizes are refused."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from smdp_launch import EnvironmentProblem, Refused
from smdp_launch.jobs.transfer.unpack import unpack
from tests.support.jobs.archives import member, with_sparse_file
from tests.support.small_disk import mounted


def packed(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for one in members:
            content = b"x" * 10 if one.isfile() else None
            one.size = 10 if content else 0
            tar.addfile(one, io.BytesIO(content) if content else None)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    return member(name, type=kind, linkname=target)


@pytest.mark.parametrize(
    ("unsafe", "message"),
    [
        (member("../escaped"), "leads out of the folder"),
        (member("/tmp/escaped"), "leads out of the folder"),
        (member("a/../../escaped"), "leads out of the folder"),
        (link("link", "/etc/passwd"), "contains the link 'link' to '/etc/passwd', which leads out of the folder"),
        (link("a/link", "../../escaped"), "which leads out of the folder"),
        (link("fine", "a"), "contains 'fine' twice"),
        (link("link", "later", tarfile.LNKTYPE), "which is no earlier file of it"),
        (link("link", "../model.tar.gz", tarfile.LNKTYPE), "leads out of the folder"),
        (link("fine", "fine", tarfile.LNKTYPE), "contains 'fine' twice"),
        (member("pipe", type=tarfile.FIFOTYPE), "a device or pipe"),
        (member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "a device or pipe"),
        (member("fine"), "twice"),
    ],
    ids=[
        "up",
        "absolute",
        "up-again",
        "symlink",
        "symlink-up",
        "symlink-twice",
        "hardlink",
        "hardlink-up",
        "hardlink-twice",
        "pipe",
        "device",
        "twice",
    ],
)
def test_archive_with_unsafe_member_is_refused(tmp_path: Path, unsafe: tarfile.TarInfo, message: str) -> None:
    archive = packed(tmp_path / "model.tar.gz", member("fine"), unsafe)
    with pytest.raises(Refused, match=message):
        unpack(archive, tmp_path / "model")
    assert [one.name for one in tmp_path.iterdir()] == ["model.tar.gz"]
    assert not (tmp_path.parent / "escaped").exists()


def test_links_within_the_folder_are_unpacked(tmp_path: Path) -> None:
    archive = packed(
        tmp_path / "model.tar.gz", member("epoch/3"), link("best", "epoch/3"), link("all/last", "../epoch"),
        link("copy", "epoch/3", tarfile.LNKTYPE), link("all/dangling", "nothing"),
    )  # fmt: skip
    unpack(archive, tmp_path / "model")
    model = tmp_path / "model"
    assert [(model / name).read_bytes() for name in ("best", "all/last/3", "copy")] == [b"x" * 10] * 3
    assert [(model / name).is_symlink() for name in ("best", "all/last", "all/dangling", "copy")] == [True] * 3 + [
        False
    ]


@pytest.mark.parametrize(
    "members",
    [
        [link("d", ".."), link("d/escaped", "a")],
        [link("d", ".."), member("d/escaped")],
        [link("a", "b/../.."), link("b", ".")],
        [link("a", "../.model.unpacking/model/fine")],
        [link("A", "fine"), link("d", "a/../..")],
        [link("a", "x/../" * 300 + "fine")],
        [link("d/" * 2000 + "a", "../" * 2001 + "escaped")],
    ],
    ids=["link", "file", "two-links", "scratch", "case", "long", "deep"],
)
def test_nothing_is_written_through_a_link(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    (tmp_path / "in").mkdir()
    assert_refused(packed(tmp_path / "in/model.tar.gz", *members), Refused, "it is not unpacked")
    assert [one.name for one in tmp_path.iterdir()] == ["in"]


def test_hard_links_count_for_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smdp_launch.jobs.transfer.unpack.MOST_BYTES", 25)
    links = [link(f"{number}", "fine", tarfile.LNKTYPE) for number in range(2)]
    assert_refused(packed(tmp_path / "model.tar.gz", member("fine"), *links), Refused, "the limit is 25 B")


def assert_refused(archive: Path, error: type[Exception], message: str) -> None:
    """The archive is refused, and nothing is written."""
    with pytest.raises(error, match=message):
        unpack(archive, archive.parent / "model")
    assert [one.name for one in archive.parent.iterdir()] == [archive.name]


def test_archive_with_200_gb_of_content_is_refused(tmp_path: Path) -> None:
    archive = with_sparse_file(tmp_path / "model.tar.gz", 200 * 10**9)
    assert archive.stat().st_size < 1000
    assert_refused(archive, Refused, r"model.tar.gz \(\d+ B\) unpacks to 200.0 GB or more; .* --no-limits")


def test_archive_with_unusual_compression_ratio_is_refused(tmp_path: Path) -> None:
    archive = with_sparse_file(tmp_path / "model.tar.gz", 3 * 10**9)
    assert_refused(archive, Refused, "unpacks to 3.0 GB or more; the limit is 2.0 GB")


def test_archive_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smdp_launch.jobs.transfer.unpack.MOST_MEMBERS", 1000, raising=False)
    archive = packed(tmp_path / "model.tar.gz", *(member(f"{number}") for number in range(1001)))
    assert_refused(archive, Refused, "has more than 1000 files and folders")
    unpack(archive, tmp_path / "model", limits=False)
    assert len(list((tmp_path / "model").iterdir())) == 1001


def test_archive_with_huge_header_is_refused(tmp_path: Path) -> None:
    comment = member("weights", pax_headers={"comment": "x" * (2 << 20)})
    assert_refused(packed(tmp_path / "model.tar.gz", comment), Refused, "has a header of 2.1 MB")


def test_archive_larger_than_free_disk_space_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        archive = with_sparse_file(disk.folder / "model.tar.gz", 20 << 20)
        message = f"unpacks to 21.0 MB or more, and only 8.4 MB are free in {disk.folder}: free space there, or select"
        assert_refused(archive, EnvironmentProblem, message)
        with pytest.raises(EnvironmentProblem, match="are free in"):
            unpack(archive, disk.folder / "model", limits=False)


def test_damaged_archive_keeps_the_existing_folder(tmp_path: Path) -> None:
    archive = packed(tmp_path / "model.tar.gz", *(member(f"{number}") for number in range(1000)))
    archive.write_bytes(archive.read_bytes()[:2000])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "before").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be unpacked"):
        unpack(archive, tmp_path / "model")
    assert [one.name for one in (tmp_path / "model").iterdir()] == ["before"]
    assert {one.name for one in tmp_path.iterdir()} == {"model", "model.tar.gz"}


def test_executable_mode_is_kept(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", member("d/run", mode=0o4755), member("d/data", mode=0o666))
    unpack(archive, tmp_path / "a")
    assert (tmp_path / "a" / "d" / "run").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "a" / "d" / "data").stat().st_mode & 0o7777 == 0o644


#: Unpacks an archive; stops after its first file until a line is read, and exits.
STOPS = """
import sys
from pathlib import Path
from smdp_launch.jobs.transfer import unpack
write = unpack._write
def stop(*arguments):
    write(*arguments)
    print("stopped", flush=True)
    sys.stdin.readline()
unpack._write = stop
unpack.unpack(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_killed_process_leaves_nothing_after_the_next_one(tmp_path: Path) -> None:
    archive = packed(tmp_path / "model.tar.gz", member("a"), member("b"))
    command = [sys.executable, "-c", STOPS, archive, tmp_path / "model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "stopped\n"
        with pytest.raises(Refused, match="another process is unpacking to"):
            unpack(archive, tmp_path / "model")
        running.send_signal(signal.SIGKILL)
    assert not (tmp_path / "model").exists()
    unpack(archive, tmp_path / "model")
    assert {one.name for one in tmp_path.iterdir()} == {"model", "model.tar.gz"}
    assert {one.name for one in (tmp_path / "model").iterdir()} == {"a", "b"}
