"""Framework builds: which Python and CUDA each was built with, and whether AWS's library came with it."""

from __future__ import annotations

from dataclasses import dataclass

from smdp_launch.catalog.tables import table

#: The names people know the frameworks by.
TITLES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}


@dataclass(frozen=True)
class Build:
    """One framework version in AWS's training images.

    Args:
        smddp: version of AWS's data-parallel library inside, None where the image has none.
    """

    framework: str
    version: str
    python: str
    cuda: str
    smddp: str | None
    image_tag: str

    @property
    def cuda_major(self) -> int:
        return int(self.cuda.split(".")[0])


def versions(framework: str) -> list[str]:
    return list(table("frameworks")["builds"][framework])


def minimum(framework: str) -> str:
    """The first version the library was documented for."""
    return str(table("frameworks")["minimum"][framework])


def build(framework: str, version: str) -> Build | None:
    """The build of ``version``; "2.0" means the newest 2.0.x."""
    exact = version if version in versions(framework) else None
    found = exact or next((one for one in reversed(versions(framework)) if one.startswith(f"{version}.")), None)
    if found is None:
        return None
    row = dict(table("frameworks")["builds"][framework][found])
    short = row["python"].replace(".", "")
    tag = row.pop("image_tag", f"{found}-gpu-py{short}")
    return Build(framework, found, image_tag=tag, **row)


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
