"""Paths of Windows, macOS and Linux as names in archives and keys of S3, and back."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.request.names import S3Location
from smdp_launch.source.file_names import BadNameError, checked_name, name_below

AnyPath = TypeVar("AnyPath", bound=PurePath)
systems = st.sampled_from([PurePosixPath, PureWindowsPath])

#: Parts of a name that every system can have. "a b" and "..x" are no special names.
parts = st.text(st.characters(codec="utf-8", exclude_characters='/\\<>:"|?*', min_codepoint=32), min_size=1).filter(
    lambda text: text[-1] not in ". " and PureWindowsPath(text).stem.rstrip().upper() not in RESERVED
)
RESERVED = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"} | {
    f"{device}{number}" for device in ("COM", "LPT") for number in "0123456789\xb9\xb2\xb3"
}
names = st.lists(parts, min_size=1, max_size=5).map("/".join)
folders = {PurePosixPath: PurePosixPath("/home/me/job"), PureWindowsPath: PureWindowsPath(r"C:\Users\me\job")}
#: Names as an archive or a bucket may have them, of the characters that matter.
hostile = st.text(st.sampled_from(list("a./\\:* \0C~")), max_size=12)


@given(names, systems)
def test_a_name_is_the_same_on_every_system(name: str, system: type[PurePath]) -> None:
    folder = folders[system]
    local = folder.joinpath(*name.split("/"))
    assert name_below(local, folder) == name
    assert folder / checked_name(name, system) == local
    assert S3Location("bucket", "prefix").join(name_below(local, folder)).key == f"prefix/{name}"


@given(hostile, systems)
def test_no_name_leads_out_of_its_folder(name: str, system: type[PurePath]) -> None:
    folder = folders[system]
    try:
        local = folder / checked_name(name, system)
    except BadNameError:
        return
    assert folder in local.parents
    assert ".." not in local.parts
    assert name_below(local, folder) == PurePosixPath(name).as_posix()


@pytest.mark.parametrize(
    "name",
    [r"..\escaped", r"a\..\..\b", "C:/escaped", "C:escaped", "a:b", "NUL", "nul.txt", "con .x", "COM1", "x/aux", "end.",
     "end ", 'quo"te', "line\nend", "tab\t", "a*", "\\\\server\\share\\x", "//server/share/x"],
)  # fmt: skip
def test_names_that_windows_cannot_have(name: str) -> None:
    with pytest.raises(BadNameError):
        checked_name(name, PureWindowsPath)


@pytest.mark.parametrize("system", [PurePosixPath, PureWindowsPath])
@pytest.mark.parametrize("name", ["", ".", "/", "/a", "..", "../a", "a/../../b", "a\0b"])
def test_names_that_no_system_takes(name: str, system: type[PurePath]) -> None:
    with pytest.raises(BadNameError, match="leads out of the folder"):
        checked_name(name, system)


@pytest.mark.parametrize("name", [r"a\b", "a:b", "NUL", "end.", 'quo"te', "2026-11-21T10:00:00+00:00.json"])
def test_names_that_linux_and_macos_take(name: str) -> None:
    assert str(checked_name(name, PurePosixPath)) == name
