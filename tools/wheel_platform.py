"""`wheel_platform.py WHEEL...`: name each wheel for linux after the C library that it was built with.

pip installs a wheel with the tag linux_x86_64 everywhere, and its libraries then fail to load where the C library is
older than that of the build. With a tag such as manylinux_2_36_x86_64, pip refuses it there.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import zipfile
from pathlib import Path


def main(wheels: list[str]) -> None:
    for name in wheels:
        tag_wheel(Path(name), c_library())


def c_library() -> str:
    """Such as 2.36, the version of the C library of this Python."""
    name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    if name != "glibc":
        sys.exit("the wheels need glibc, and this Python has another C library")
    return version


def tag_wheel(wheel: Path, version: str) -> Path:
    """Replace the platform linux_ARCHITECTURE in the name and the content of a wheel. Other wheels are not changed."""
    major, minor = version.split(".")[:2]
    name = re.sub(r"-linux_(\w+)\.whl$", rf"-manylinux_{major}_{minor}_\1.whl", wheel.name)
    if name == wheel.name:
        return wheel
    tag = re.compile(rb"^(Tag: .*-)linux_", re.MULTILINE)
    target = wheel.with_name(name)
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        contents = {info.filename: (info, old.read(info)) for info in old.infolist()}
        (described,) = (one for one in contents if one.endswith(".dist-info/WHEEL"))
        info, text = contents[described]
        text = tag.sub(rb"\g<1>manylinux_%s_%s_" % (major.encode(), minor.encode()), text)
        contents[described] = (info, text)
        record = described[: -len("WHEEL")] + "RECORD"
        line = f"{described},sha256={_digest(text)},{len(text)}"
        lines = contents[record][1].decode().splitlines()
        lines = [line if one.startswith(f"{described},") else one for one in lines]
        contents[record] = (contents[record][0], "".join(f"{one}\n" for one in lines).encode())
        for one, content in contents.values():
            new.writestr(one, content)
    wheel.unlink()
    return target


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


if __name__ == "__main__":
    main(sys.argv[1:])
