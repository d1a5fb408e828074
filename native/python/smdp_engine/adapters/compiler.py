"""The compiler of this machine, and the command that builds an adapter."""

import os
import shlex
import shutil
import sysconfig
from pathlib import Path
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .frameworks import Installed, pybind11_marks

_SOURCES = {
    "torch": ("torch/adapter.cc", "common/completer.cc"),
    "tensorflow": (
        "tensorflow/calls.cc",
        "tensorflow/lane.cc",
        "tensorflow/ops.cc",
        "tensorflow/session.cc",
        "common/completer.cc",
    ),
}
# Package managers, with the command that installs a compiler.
_INSTALLERS = (
    ("apt-get", "apt-get install -y g++"),
    ("dnf", "dnf install -y gcc-c++"),
    ("yum", "yum install -y gcc-c++"),
    ("zypper", "zypper install -y gcc-c++"),
    ("apk", "apk add g++"),
    ("pacman", "pacman -S --noconfirm gcc"),
)


class Needs(NamedTuple):
    """What the compiler needs for the adapter of one framework."""

    standard: int
    includes: Sequence[str]
    definitions: Sequence[Tuple[str, str]]
    library_folder: str
    libraries: Sequence[str]


def needs(installed: Installed, python_include: Optional[str] = None) -> Needs:
    abi = ("_GLIBCXX_USE_CXX11_ABI", str(int(installed.cxx11_abi)))
    if installed.framework == "tensorflow":
        tied = installed.folder.glob("libtensorflow_framework.so*")
        library = min((f":{one.name}" for one in tied), default=":libtensorflow_framework.so.2")
        # As tf.sysconfig reports them, and C++17 as TensorFlow itself is compiled.
        definitions = (abi, ("EIGEN_MAX_ALIGN_BYTES", "64"))
        return Needs(17, (str(installed.folder / "include"),), definitions, str(installed.folder), (library,))
    include = installed.folder / "include"
    includes = [str(include), str(include / "torch" / "csrc" / "api" / "include")]
    definitions_ = [abi, ("SMDP_TORCH_BUILT_FOR", f'"{installed.version}"')]
    libraries = ["torch", "torch_cpu", "c10"]
    if installed.needs_python:
        includes.append(python_include or sysconfig.get_paths()["include"])
        definitions_ += [("TORCH_EXTENSION_NAME", "_torch"), ("TORCH_API_INCLUDE_EXTENSION_H", "1")]
        definitions_ += [(f"PYBIND11_{name}", f'"{value}"') for name, value in pybind11_marks(installed)]
        libraries.append("torch_python")
    return Needs(20, includes, definitions_, str(installed.folder / "lib"), libraries)


def find() -> Optional[List[str]]:
    """The compiler's command: that of ``CXX``, else the first on PATH."""
    chosen = os.environ.get("CXX", "").strip()
    if chosen:
        try:
            return shlex.split(chosen)
        except ValueError:  # a quote without its end: the error of starting it names it
            return [chosen]
    found = next((path for path in map(shutil.which, ("g++", "c++", "clang++")) if path), None)
    return [found] if found else None


def how_to_install(environment: Mapping[str, str] = os.environ) -> str:
    """The command that installs a compiler on this machine."""
    if environment.get("CONDA_PREFIX"):
        return "conda install -y -c conda-forge gxx && export CXX=x86_64-conda-linux-gnu-g++"
    command = next((command for program, command in _INSTALLERS if shutil.which(program)), "apt-get install -y g++")
    return f"sudo {command}" if os.geteuid() != 0 and shutil.which("sudo") else command


def command(
    compiler: Sequence[str],
    installed: Installed,
    target: Path,
    *,
    sources: Path,
    engine_include: Path,
    engine_folder: Path,
    python_include: Optional[str] = None,
) -> List[str]:
    """The command that writes the adapter ``target``.

    ``sources`` holds the folders of the adapters' sources, ``engine_folder`` the engine's library.
    """
    wanted = needs(installed, python_include)
    return [
        *compiler,
        f"-std=c++{wanted.standard}",
        *("-O3", "-DNDEBUG", "-g0", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-pthread", "-w"),
        *(f"-D{name}={value}" for name, value in wanted.definitions),
        f"-I{engine_include}",
        *(part for folder in wanted.includes for part in ("-isystem", folder)),
        *(str(sources / source) for source in _SOURCES[installed.framework]),
        "-shared",
        *("-o", str(target)),
        f"-L{engine_folder}",
        f"-L{wanted.library_folder}",
        *("-Wl,--no-as-needed", "-lsmdp_engine", *(f"-l{library}" for library in wanted.libraries)),
    ]
