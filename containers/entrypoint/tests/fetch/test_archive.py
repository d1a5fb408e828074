from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from smdp_entrypoint.contract.errors import SourceError
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.fetch.archive import unpack
from smdp_entrypoint.fetch.metered import Metered
from smdp_entrypoint.fetch.source import fetch_source


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def make(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: Any = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target), b""


def file(name: str, content: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, mode=mode), content


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "code").mkdir()
    return tmp_path


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_archive_with_files_folders_and_links_is_unpacked(place: Path, mode: str) -> None:
    """Files have the time of the unpacking: compilers that keep their results rebuild what is newer."""
    began = time.time()
    archive = make(
        place / "a.tar",
        (member("./", type=tarfile.DIRTYPE), b""),
        file("./train.py", b"print(1)"),
        (member("lib", type=tarfile.DIRTYPE, mode=0), b""),
        file("lib/run.sh", b"#!", mode=0o4777),
        link("lib/again.py", "../train.py"),
        link("copy.py", "train.py", tarfile.LNKTYPE),
        (member("./train.py", mode=0o644, mtime=946_684_800), b"print(2)"),
        (member("later.py", mode=0o644, mtime=1 << 70), b"x"),  # no time of this system
        mode=mode,
    )
    assert unpack(archive, place / "code") == 4
    assert (place / "code/train.py").read_text() == "print(2)"
    assert (place / "code/train.py").stat().st_mtime > began - 1  # of the file system's clock
    assert (place / "code/lib/again.py").read_text() == "print(2)"
    assert (place / "code/copy.py").read_text() == "print(1)"
    assert (place / "code/lib/run.sh").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "members",
    [
        [file("/etc/evil")],
        [file("../evil")],
        [file("a/../../evil")],
        [link("out", "/etc/passwd")],
        [link("out", "../secret")],
        [link("a/out", "../../secret")],
        [link("loop", "loop")],
        [link("d/here", "."), link("out", "d/here/../../secret")],
        [link("out", ".."), file("out/evil")],
        [link("out", "../secret"), file("out", b"overwritten")],
        [file("real"), link("out", "real"), file("out", b"hidden by the link")],
        [link("out", ".."), link("out/secret", "code")],
        [link("out", ".."), link("out/new", "code")],
        [link("out", "../code/inner"), (member("inner", type=tarfile.DIRTYPE), b""), link("out/deep/new", "x")],
        [(member("a", pax_headers={"path": "nul\0x"}), b"")],
        [file("out"), link("hard", "../secret", tarfile.LNKTYPE)],
        [link("hard", "later", tarfile.LNKTYPE), file("later")],
        [(member("device", type=tarfile.CHRTYPE), b"")],
        [(member("pipe", type=tarfile.FIFOTYPE), b"")],
    ],
    ids=lambda members: " ".join(info.name for info, _ in members),
)
def test_nothing_is_written_or_linked_outside(place: Path, members: list[Any]) -> None:
    archive = make(place / "a.tar.gz", *members)
    with pytest.raises(SourceError):
        unpack(archive, place / "code")
    assert (place / "secret").read_text() == "secret"
    assert sorted(entry.name for entry in place.iterdir()) == ["a.tar.gz", "code", "secret"]
    for folder, folders, files in os.walk(place / "code"):
        for name in folders + files:
            assert place / "code" in Path(folder, name).resolve().parents


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "a.tar.gz is not a tar.gz archive: its content starts with b''"),
        (b"<html>not found</html>", "is not a tar.gz archive: its content starts with b'<html>not found</html>'"),
        (b"PK\x03\x04" + 600 * b"x", r"is not a tar.gz archive: its content starts with b'PK\\x03\\x04x{36}'"),
        (gzip.compress(b"text"), "is not a tar.gz archive: its content starts with b'text'"),
        (b"\x1f\x8bno archive either", "cannot be unpacked"),
    ],
    ids=["empty", "page", "zip", "gzipped text", "gzip header"],
)
def test_file_that_is_not_an_archive_is_refused(place: Path, content: bytes, reason: str) -> None:
    (place / "a.tar.gz").write_bytes(content)
    with pytest.raises(SourceError, match=reason):
        unpack(place / "a.tar.gz", place / "code")


def test_address_of_a_file_that_is_not_an_archive_is_shown(place: Path) -> None:
    (place / "a.tar.gz").write_bytes(b"<html>")
    with pytest.raises(SourceError, match=r"^s3://bucket/a\.tar\.gz is not a tar.gz archive"):
        unpack(place / "a.tar.gz", place / "code", "s3://bucket/a.tar.gz")


def test_truncated_archive_is_refused(place: Path) -> None:
    whole = make(place / "a.tar.gz", file("train.py", os.urandom(5000))).read_bytes()
    (place / "a.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="cannot be unpacked"):
        unpack(place / "a.tar.gz", place / "code")


def test_a_local_folder_archive_or_file_is_a_source_too(place: Path, messages: list[str]) -> None:
    (place / "src/pkg").mkdir(parents=True)
    (place / "src/train.py").write_text("1")
    (place / "src/pkg/mod.py").write_text("2")
    archive = make(place / "a.tar.gz", file("train.py"))
    for number, source in enumerate([f"file://{place}/src", str(archive), str(place / "src/train.py")]):
        tree = MlTree(place / f"ml{number}")
        tree.create()
        fetch_source(source, tree, {}, messages.append)
        assert (tree.code / "train.py").is_file()
    assert (place / "ml0/code/pkg/mod.py").read_text() == "2"


def test_existing_code_is_used(place: Path, messages: list[str]) -> None:
    tree = MlTree(place / "ml")
    tree.create()
    (tree.code / "mine.py").write_text("mine")
    fetch_source("s3://not/requested", tree, {}, messages.append)
    assert [entry.name for entry in tree.code.iterdir()] == ["mine.py"]
    assert "is not empty" in messages[0]


def test_device_as_source_is_refused(place: Path, messages: list[str]) -> None:
    tree = MlTree(place)
    tree.create()
    with pytest.raises(SourceError, match="The source /dev/zero is not a folder or file"):
        fetch_source("/dev/zero", tree, {}, messages.append)


def test_a_missing_local_source_is_named(place: Path, messages: list[str]) -> None:
    tree = MlTree(place / "ml")
    tree.create()
    with pytest.raises(SourceError, match="/no/such/place"):
        fetch_source("/no/such/place", tree, {}, messages.append)


def gnu_sparse(name: str, size: int) -> bytes:
    """A sparse member that declares `size` bytes and has no data."""
    info = tarfile.TarInfo(name)
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(size)}
    info.pax_headers.update({"GNU.sparse.numblocks": "1", "GNU.sparse.map": f"{size},0", "GNU.sparse.name": name})
    return info.tobuf(tarfile.PAX_FORMAT)


END = b"\0" * 1024
BOMBS = {
    "a long file of zeros": (lambda: zeros_in_a_file(3 * 1024**3), "unpacks to more than"),
    "a hole larger than the disk": (lambda: gzip.compress(gnu_sparse("x", 1 << 60) + END), "than allowed|are free"),
    "holes in many files": (
        lambda: gzip.compress(b"".join(gnu_sparse(str(i), 1 << 28) for i in range(40)) + END),
        "unpacks to more than allowed",
    ),
    "an endless header": (lambda: gzip.compress(endless_header() + b"a" * 100_000), "a header of"),
}


def zeros_in_a_file(size: int) -> bytes:
    """Gzip data of a tar whose single file declares `size` zeros and contains the first of them."""
    return gzip.compress(member("zeros", size=size).tobuf() + b"\0" * (1 << 24))


def endless_header() -> bytes:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    make, reason = BOMBS[kind]
    archive, folder = tmp_path / "sourcedir.tar.gz", tmp_path / "code"
    archive.write_bytes(make())
    folder.mkdir()
    with pytest.raises(SourceError, match=reason):
        unpack(archive, folder)
    assert list(folder.iterdir()) == []


def test_files_of_sizes_around_a_block_are_complete(tmp_path: Path) -> None:
    archive, folder = tmp_path / "sourcedir.tar.gz", tmp_path / "code"
    folder.mkdir()
    sizes = [0, 1, 511, 512, 513, 1024, 8192, 10240, 65536, 1 << 20, (1 << 20) + 512]
    with tarfile.open(archive, "w:gz") as tar:
        for size in sizes:
            info = tarfile.TarInfo(str(size))
            info.size = size
            tar.addfile(info, io.BytesIO(bytes(size % 251 for _ in range(size))))
    assert unpack(archive, folder) == len(sizes)
    for size in sizes:
        assert (folder / str(size)).read_bytes() == bytes(size % 251 for _ in range(size))


def test_reading_stops_at_the_limits() -> None:
    metered = Metered(io.BytesIO(b"0123456789" * 10), limit=20, seconds=60)
    assert metered.read(10) == b"0123456789"
    assert metered.seek(9) == 9
    assert metered.read(2) == b"90"
    assert metered.seek(15) == 15
    with pytest.raises(SourceError, match="unpacks to more than 20 bytes"):
        metered.seek(30)
    with pytest.raises(SourceError, match="cannot be read sequentially"):
        metered.seek(3)
    with pytest.raises(SourceError, match="could not be unpacked within 0 s"):
        Metered(io.BytesIO(b"0"), limit=20, seconds=0).read(1)
