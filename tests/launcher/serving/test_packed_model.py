"""The model's archive with the serving script: its content, its bytes, and what is refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from smdp_launch.source.archive import MODIFIED
from smdp_launch.source.packed_model import UnsafeModelError, pack_model
from smdp_launch.source.scan import scan_source

TYPES = {"device": tarfile.CHRTYPE, "pipe": tarfile.FIFOTYPE}


def archive(*entries: tuple[str, bytes], mode: str = "w:gz", mtime: int = 1) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in entries:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.uname = len(content), mtime, mtime, "root"
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def source(folder: Path) -> Path:
    (folder / "src" / "lib").mkdir(parents=True)
    (folder / "src" / "inference.py").write_text("def model_fn(model_dir): ...\n")
    (folder / "src" / "lib" / "net.py").write_text("SIZE = 3\n")
    (folder / "src" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "src" / "run.sh").chmod(0o755)
    return folder / "src"


def packed(trained: bytes, folder: Path) -> bytes:
    result = io.BytesIO()
    pack_model(io.BytesIO(trained), scan_source(folder), result, lambda: None)
    return result.getvalue()


def content(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        files = {one.name: tar.extractfile(one) for one in tar if one.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_script_and_its_folder_stand_below_code_beside_the_model(tmp_path: Path) -> None:
    made = content(packed(archive(("./model.pt", b"weights"), ("labels.json", b"{}")), source(tmp_path)))
    assert made == {
        "model.pt": b"weights",
        "labels.json": b"{}",
        "code/inference.py": b"def model_fn(model_dir): ...\n",
        "code/lib/net.py": b"SIZE = 3\n",
        "code/run.sh": b"#!/bin/sh\n",
    }


def test_new_script_replaces_the_folder_code_of_the_archive(tmp_path: Path) -> None:
    trained = archive(("model.pt", b"weights"), ("code/inference.py", b"old"), ("./code/other.py", b"old"))
    made = content(packed(trained, source(tmp_path)))
    assert made["code/inference.py"] == b"def model_fn(model_dir): ...\n"
    assert "code/other.py" not in made


def test_same_model_and_folder_give_the_same_bytes(tmp_path: Path) -> None:
    folder = source(tmp_path)
    first = packed(archive(("model.pt", b"weights"), mtime=1), folder)
    assert packed(archive(("model.pt", b"weights"), mtime=2), folder) == first
    with tarfile.open(fileobj=io.BytesIO(first), mode="r:gz") as tar:
        entries = tar.getmembers()
    assert {(one.mtime, one.uid, one.uname) for one in entries} == {(MODIFIED, 0, "")}
    assert {one.name: one.mode for one in entries if "run" in one.name} == {"code/run.sh": 0o755}


@pytest.mark.parametrize("name", ["../model.pt", "/etc/passwd", "a/../../b"])
def test_name_that_leads_out_of_the_archive_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeModelError, match="leads out"):
        packed(archive((name, b"x")), source(tmp_path))


@pytest.mark.parametrize("kind", TYPES)
def test_device_and_pipe_are_refused(tmp_path: Path, kind: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        member = tarfile.TarInfo("model.pt")
        member.type = TYPES[kind]
        tar.addfile(member)
    with pytest.raises(UnsafeModelError, match="device or a pipe"):
        packed(made.getvalue(), source(tmp_path))


def test_damaged_archive_is_an_error(tmp_path: Path) -> None:
    whole = archive(("model.pt", bytes(range(256)) * 4096))
    with pytest.raises((tarfile.TarError, EOFError)):
        packed(whole[: len(whole) // 2], source(tmp_path))


def test_links_are_kept(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        member = tarfile.TarInfo("latest.pt")
        member.type, member.linkname = tarfile.SYMTYPE, "model.pt"
        tar.addfile(member)
    with tarfile.open(fileobj=io.BytesIO(packed(made.getvalue(), source(tmp_path))), mode="r:gz") as tar:
        assert (tar.getmember("latest.pt").issym(), tar.getmember("latest.pt").linkname) == (True, "model.pt")
