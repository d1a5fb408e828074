"""Framework builds: which Python and CUDA each was built with, and whether AWS's library came with it."""

from __future__ import annotations

from typing import Any, NamedTuple

from smdp_launch.catalog.tables import table

#: The names people know the frameworks by.
TITLES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}


class Build(NamedTuple):
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

    @property
    def repository(self) -> str:
        return str(table("frameworks")["repositories"][self.framework])


def frameworks() -> list[str]:
    return list(table("frameworks")["builds"])


def versions(framework: str) -> list[str]:
    return list(table("frameworks")["builds"][framework])


def minimum(framework: str) -> str:
    """The first version the library was documented for."""
    return str(table("frameworks")["minimum"][framework])


def numpy_2_since(framework: str) -> str:
    """The first version that was compiled for NumPy 2; earlier ones fail with it."""
    return str(table("frameworks")["numpy_2"]["since"][framework])


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


def builds(framework: str) -> list[Build]:
    return [found for version in versions(framework) if (found := build(framework, version)) is not None]


def alternatives(framework: str, version: str) -> list[Build]:
    """Further images of exactly ``version``, with another CUDA than the one of ``build``."""
    rows: list[dict[str, Any]] = table("frameworks")["alternatives"]
    return [Build(**row) for row in rows if (row["framework"], row["version"]) == (framework, version)]


def last_library_version() -> str:
    """Of AWS's library: the last that came in an image of AWS's."""
    return max((one.smddp for name in frameworks() for one in builds(name) if one.smddp is not None), key=parts)


def native_builds(framework: str) -> list[str]:
    """The versions that the native engine is built for; empty where there are none."""
    return list(table("frameworks")["native"].get(framework, {}))


def native_cuda(framework: str, version: str) -> str | None:
    """The CUDA of our image for one of ``native_builds``; None where we have an image for CPUs only."""
    cuda: str | None = table("frameworks")["native"][framework][version]
    return cuda


def is_cuda_11(cuda: str | None) -> bool:
    """Of a version such as "11.8"; None, where there is no CUDA or none is known, is not."""
    return cuda is not None and cuda.startswith("11.")


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
