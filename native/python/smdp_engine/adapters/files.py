"""The adapters that this package brings: one file for each framework's minor version and C++ ABI.

A name such as ``torch-2.14-cxx11abi1.so`` says what the file fits; ``torch-2.0-cxx11abi0-cp310.so`` fits one Python.
An adapter of a nightly or other unreleased build has its whole version in the name.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from .frameworks import Installed

FOLDER = Path(__file__).resolve().parents[1] / "_adapters"
_NAME = re.compile(r"(torch|tensorflow)-(\d+\.\d+[^-]*)-cxx11abi([01])(?:-(cp\d+t?))?\.so")


@dataclass(frozen=True)
class Adapter:
    """A compiled adapter. ``version`` is a minor one such as ``2.14``; ``python`` is None where it fits each."""

    path: Path
    framework: str
    version: str
    cxx11_abi: bool
    python: Optional[str]


def exact_name(installed: Installed) -> str:
    return _name(installed, installed.version)


def name_of(installed: Installed) -> str:
    return _name(installed, installed.minor if installed.is_release else installed.version)


def _name(installed: Installed, version: str) -> str:
    python = f"-{installed.python}" if installed.needs_python else ""
    return f"{installed.framework}-{version}-cxx11abi{int(installed.cxx11_abi)}{python}.so"


def shipped() -> List[Adapter]:
    """All adapters that the package brings."""
    found = []
    for path in sorted(FOLDER.glob("*.so")):
        name = _NAME.fullmatch(path.name)
        if name:
            found.append(Adapter(path, name[1], name[2], name[3] == "1", name[4]))
    return sorted(found, key=lambda one: (one.framework, _numbers(one.version), _numbers((one.python or "")[3:])))


def fitting(installed: Installed) -> Optional[Path]:
    """The adapter of this package that fits the framework, if there is one."""
    path = FOLDER / name_of(installed)
    return path if path.exists() else None


def _numbers(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
