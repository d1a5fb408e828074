"""Framework builds: the Python and CUDA versions of each, and whether AWS's image contains AWS's library."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from smdp_launch.catalog.tables import table

#: The names people know the frameworks by.
TITLES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}


class Build(NamedTuple):
    """One framework version in AWS's training images.

    Args:
        smddp: version of AWS's data-parallel library in the image; None if the image does not contain it.
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
    """The first version that the library's documentation supports."""
    return str(table("frameworks")["minimum"][framework])


def numpy_2_since(framework: str) -> str:
    """The first version for NumPy 2; earlier ones fail with it."""
    return str(table("frameworks")["numpy_2"]["since"][framework])


def needed_by_import(name: str) -> str | None:
    """The first PyTorch that has ``name``, a module or a name in one; None if it is not in the table."""
    known: dict[str, str] = table("frameworks")["needs"]["imports"]
    return next((since for one, since in known.items() if name == one or name.startswith(f"{one}.")), None)


class TransformersNeed(NamedTuple):
    """The first release of transformers that needs a PyTorch, and the Python of that release."""

    release: str
    python: str
    pytorch: str


def transformers_need() -> TransformersNeed:
    return TransformersNeed(**table("frameworks")["needs"]["transformers"])


def torchrun_since() -> str:
    """The first PyTorch whose image of AWS starts torchrun."""
    return str(table("frameworks")["torchrun"]["since"])


@functools.cache
def build(framework: str, version: str) -> Build | None:
    """The build of ``version``; "2.0" means the newest 2.0.x."""
    exact = version if version in versions(framework) else None
    full = exact or next((one for one in reversed(versions(framework)) if matches(one, version)), None)
    if full is None:
        return None
    row = dict(table("frameworks")["builds"][framework][full])
    short = row["python"].replace(".", "")
    tag = row.pop("image_tag", f"{full}-gpu-py{short}")
    return Build(framework, full, image_tag=tag, **row)


def builds(framework: str) -> list[Build]:
    return [one for version in versions(framework) if (one := build(framework, version)) is not None]


def alternatives(framework: str, version: str) -> list[Build]:
    """Other images of exactly ``version``, with another CUDA version than that of ``build``."""
    rows: list[dict[str, Any]] = table("frameworks")["alternatives"]
    return [Build(**row) for row in rows if (row["framework"], row["version"]) == (framework, version)]


def last_library_version() -> str:
    """The last version of AWS's library in one of AWS's images."""
    return max((one.smddp for name in frameworks() for one in builds(name) if one.smddp is not None), key=parts)


def native_since(framework: str) -> str:
    """The first version that the native engine has an adapter for, in its wheel or built at its first use."""
    return str(table("frameworks")["native"]["since"][framework])


def native_supports(framework: str, version: str) -> bool:
    """Whether the native engine can run with ``version``: any later version with the same major number."""
    first = parts(native_since(framework))
    return parts(version)[0] == first[0] and parts(version) >= first[: len(parts(version))]


def native_images(framework: str) -> list[str]:
    """The versions that ``image build`` has a recipe for: the newest patch release of each minor version."""
    return list(table("frameworks")["native"]["images"][framework])


def native_versions(framework: str) -> list[str]:
    """The versions that the native engine supports, as far as this table knows them, oldest first."""
    known = {*native_images(framework), *versions(framework)}
    return sorted((one for one in known if native_supports(framework, one)), key=parts)


def native_python() -> str:
    """The Python version of every image that ``image build`` makes."""
    return str(table("frameworks")["native"]["python"])


def native_image(framework: str, version: str) -> str | None:
    """The one of ``native_images`` with the minor version of ``version``, the newest one for "2"; None without one."""
    minor = ".".join(version.split(".")[:2])
    return next((one for one in reversed(native_images(framework)) if matches(one, minor)), None)


@functools.cache
def native_cuda(framework: str, version: str) -> str | None:
    """The CUDA version of the image that ``image build`` makes for ``version``. Without a recipe for it, that of AWS's
    image; None if there is none either."""
    found, of_aws = native_image(framework, version), build(framework, version)
    if found is not None:
        return str(table("frameworks")["native"]["images"][framework][found])
    return of_aws.cuda if of_aws is not None else None


def is_cuda_11(cuda: str | None) -> bool:
    """Whether a CUDA version such as "11.8" is 11.x; False for None, which means no CUDA or an unknown version."""
    return cuda is not None and cuda.startswith("11.")


def matches(version: str, requested: str) -> bool:
    """Whether ``version`` is ``requested``, which may be shortened: 2.0.1 matches "2.0"."""
    return version == requested or version.startswith(f"{requested}.")


@functools.cache
def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
