"""The processors that a release has engine wheels for, and what builds for each."""

import platform
import sys
from pathlib import Path
from typing import NamedTuple


class Machine(NamedTuple):
    """A processor.

    Args:
        debian: the name of its packages.
        tensorflows: the distributions that may hold TensorFlow for it.
    """

    name: str
    debian: str
    tensorflows: tuple[str, ...]

    @property
    def triple(self) -> str:
        return f"{self.name}-linux-gnu"

    @property
    def is_this(self) -> bool:
        return platform.machine() == self.name

    def program(self, name: str) -> str:
        """Such as g++: this machine's own, or that of Debian's cross compiler."""
        return name if self.is_this else f"{self.triple}-{name}"

    def cxx_headers(self, number: str) -> list[Path]:
        """The headers of the compiler's own C++ library."""
        if self.is_this:
            return [Path(f"/usr/include/c++/{number}"), Path(f"/usr/include/{self.triple}/c++/{number}")]
        top = Path(f"/usr/{self.triple}/include/c++/{number}")
        return [top, top / self.triple]

    @property
    def platform(self) -> str:
        return f"manylinux_2_31_{self.name}"

    @property
    def platforms_of_wheels(self) -> list[str]:
        """Those of wheels that run with glibc 2.31, as pip names them, for another machine than this one."""
        names = [f"manylinux_2_{minor}_{self.name}" for minor in range(31, 16, -1)]
        return [*names, f"manylinux2014_{self.name}"]


_ALL = {
    "x86_64": Machine("x86_64", "amd64", ("tensorflow-cpu",)),
    "aarch64": Machine("aarch64", "arm64", ("tensorflow-cpu-aws", "tensorflow")),
}


def machine_named(name: str) -> Machine:
    if name not in _ALL:
        sys.exit(f"{name!r} is not one of {', '.join(_ALL)}")
    return _ALL[name]
