"""The framework that is installed, found without importing it."""

import importlib.util
import mmap
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

FRAMEWORKS = ("torch", "tensorflow")
# A symbol of each framework whose name shows the ABI: it takes a std::string.
_ABI_MARKS = {
    "torch": ("lib/libc10.so", b"_ZN3c105ErrorC2ENS_14SourceLocationESs"),
    "tensorflow": ("libtensorflow_framework.so.2", b"_ZN10tensorflow12OpDefBuilder4AttrESs"),
}
_TENSORFLOW = re.compile(r"(?:\w*_)?(?:tensorflow(?:_cpu|_gpu|_intel|_rocm|_cpu_aws)?|tf_nightly(?:_cpu)?)-(\d[^-]*)")
_RELEASE = re.compile(r"(\d+\.\d+)\.\d+(?:\.post\d+)?(?:\+.*)?")


@dataclass(frozen=True)
class Installed:
    """A framework in a folder. ``version`` is as the framework reports it, such as ``2.13.0+cpu``."""

    framework: str
    version: str
    folder: Path
    cxx11_abi: bool
    python: str  # such as "cp311"

    @property
    def minor(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def is_release(self) -> bool:
        """Whether the version stands for one state of the framework's headers; those of nightly builds differ."""
        return _RELEASE.fullmatch(self.version) is not None

    @property
    def needs_python(self) -> bool:
        """Whether its adapter fits one Python only: torch 2.0 gives no way to its groups without pybind11."""
        major, minor = (int(part) for part in self.minor.split("."))
        return self.framework == "torch" and (major, minor) < (2, 6)

    def __str__(self) -> str:
        return f"{'TensorFlow' if self.framework == 'tensorflow' else self.framework} {self.version}"


def installed(framework: str, folder: Optional[Path] = None, python: Optional[str] = None) -> Optional[Installed]:
    """The framework of this Python, or the one in ``folder``; None if there is none."""
    module = sys.modules.get(framework) if folder is None else None
    if folder is None:
        folder = _folder(framework)
    if folder is None:
        return None
    version = str(module.__version__) if module is not None else _version(framework, folder)
    if version is None or re.match(r"\d+\.\d+", version) is None:
        return None
    this = f"cp{sys.version_info[0]}{sys.version_info[1]}" + getattr(sys, "abiflags", "").replace("m", "")
    return Installed(framework, version, folder, _has_new_abi(framework, folder), python or this)


def _folder(framework: str) -> Optional[Path]:
    try:
        spec = importlib.util.find_spec(framework)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _version(framework: str, folder: Path) -> Optional[str]:
    if framework == "torch":
        try:
            text = (folder / "version.py").read_text(encoding="utf-8")
        except OSError:
            return None
        found = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
        return found[1] if found else None
    # TensorFlow's version stands in compiled code. Its distributions have several names: tensorflow_cpu, ...
    names = (_TENSORFLOW.fullmatch(one.stem) for one in sorted(folder.parent.glob("*.dist-info")))
    return next((name[1] for name in names if name), None)


def _has_new_abi(framework: str, folder: Path) -> bool:
    library, old = _ABI_MARKS[framework]
    try:
        with (folder / library).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(old) < 0
    except (OSError, ValueError):  # not where its wheels have it: as every build of today
        return True


def pybind11_marks(installed: Installed) -> List[Tuple[str, str]]:
    """What torch's pybind11 was built with. Modules know each other's C++ types only if they agree on these."""
    try:
        with (installed.folder / "lib" / "libtorch_python.so").open("rb") as file, mmap.mmap(
            file.fileno(), 0, access=mmap.ACCESS_READ
        ) as content:
            found = re.search(rb"__pybind11_internals_v\d+(_[a-z]+)(_[a-z]+)(_[a-z]+\d+)__", content)
            values = [bytes(value).decode() for value in found.groups()] if found else []
    except (OSError, ValueError):
        return []
    return list(zip(("COMPILER_TYPE", "STDLIB", "BUILD_ABI"), values))
