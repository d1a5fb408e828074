"""dist/release: wheels and source distributions of the commit HEAD, the same bytes wherever it is built.

The sources are those of the commit; changes that are not committed do not count. The engine's wheel holds the adapters
that the arguments name. Its libraries are linked with glibc 2.31 (sysroot.sh).
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from adapters import Builder, toolchain
from version import differing, version

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "release"
HERE = Path(__file__).resolve().parent
DISTRIBUTIONS = (".", "containers/entrypoint", "native")
LARGEST_LAUNCHER = 3 << 20
PLATFORM = "manylinux_2_31_x86_64"
# The frameworks bring these; each process that loads an adapter has them already.
NOT_OURS = ("libtorch*.so", "libc10.so", "libtensorflow*.so*")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="", help="versions of torch, separated by spaces")
    parser.add_argument("--tensorflow", default="", help="versions of TensorFlow, separated by spaces")
    parser.add_argument("--python", default="", help="Pythons of the adapters for torch before 2.6, such as 3.10")
    parser.add_argument("--target", default=ROOT / "dist" / "release", type=Path)
    chosen = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    source = _export()
    problems = differing(source)
    if problems:
        sys.exit("\n".join(problems))
    python = _tools()
    subprocess.run(["sh", str(HERE / "sysroot.sh"), str(WORK / "sysroot")], check=True)
    adapters = WORK / "adapters"
    adapters.mkdir(exist_ok=True)
    builder = Builder(source / "native", WORK, adapters)
    wanted = {"torch": chosen.torch.split(), "tensorflow": chosen.tensorflow.split()}
    built = {
        path.name
        for framework, versions in wanted.items()
        for one in versions
        for path in builder.build(framework, one, chosen.python.split())
    }
    for other in adapters.glob("*.so"):
        if other.name not in built:
            other.unlink()
    shutil.rmtree(chosen.target, ignore_errors=True)
    chosen.target.mkdir(parents=True)
    environment = _environment(python)
    for folder in DISTRIBUTIONS:
        _build(python, source / folder, chosen.target, environment, adapters if folder == "native" else None)
    _check(python, chosen.target, environment)
    _report(chosen.target)


def _export() -> Path:
    """The commit's files alone: nothing that lies beside them gets into a distribution."""
    source = WORK / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
    state = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True)
    if state.stdout:
        print("release: there are changes that are not committed; they are left out", flush=True)
    return source


def _tools() -> Path:
    """The Python with the tools of requirements.txt, whose versions are fixed."""
    folder, wanted = WORK / "tools", HERE / "requirements.txt"
    mark = folder / "requirements.txt"
    if not mark.exists() or mark.read_bytes() != wanted.read_bytes():
        venv.create(folder, clear=True, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)]
        subprocess.run([str(folder / "bin" / "python"), *install], check=True)
        shutil.copyfile(wanted, mark)
    return folder / "bin" / "python"


def _environment(python: Path) -> dict[str, str]:
    date = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True)
    flags = {name: value for name, value in os.environ.items() if not name.endswith("FLAGS") and name != "PYTHONPATH"}
    return {**flags, "SOURCE_DATE_EPOCH": date.stdout.strip(), "PATH": f"{python.parent}:{os.environ['PATH']}"}


def _build(python: Path, folder: Path, target: Path, environment: dict[str, str], adapters: Path | None) -> None:
    print(f"release: build {folder.relative_to(WORK)}", flush=True)
    build = [str(python), "-m", "build", "--no-isolation", str(folder)]
    _run([*build, "--sdist", "--outdir", str(target)], environment)
    if adapters is None:
        _run([*build, "--wheel", "--outdir", str(target)], environment)
        return
    raw = WORK / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    settings = {
        "build-dir": str(WORK / "core"),
        **{f"cmake.define.{name}": value for name, value in _core(folder, adapters).items()},
    }
    options = [f"--config-setting={name}={value}" for name, value in settings.items()]
    _run([*build, "--wheel", "--outdir", str(raw), *options], environment)
    # Refuses symbols that are newer than the tag allows.
    repair = [str(python), "-m", "auditwheel", "repair", "--plat", PLATFORM, "--only-plat", "--wheel-dir", str(target)]
    _run([*repair, *(f"--exclude={name}" for name in NOT_OURS), *(str(one) for one in raw.glob("*.whl"))], environment)


def _core(native: Path, adapters: Path) -> dict[str, str]:
    """CMake's variables: the compiler's own C++ library, linked statically, and the C library of the sysroot."""
    sysroot = WORK / "sysroot"
    root = sysroot / "root"
    asked = subprocess.run(["g++", "-print-file-name=libstdc++.a"], check=True, capture_output=True, text=True)
    number = Path(asked.stdout.strip()).resolve().parent.name
    headers = [f"/usr/include/c++/{number}", f"/usr/include/x86_64-linux-gnu/c++/{number}"]
    libraries = [one for one in toolchain(sysroot).link if one.startswith(("-B", "-L")) and "/gcc/" not in one]
    link = " ".join([f"-L{sysroot}/unwinder", *libraries, f"{sysroot}/old_glibc.o", "-Wl,--build-id=sha1"])
    return {
        "CMAKE_CXX_COMPILER": "g++",
        "CMAKE_CXX_FLAGS": " ".join(
            [
                f"--sysroot={root} -nostdinc++",
                *(f"-isystem {one}" for one in headers),
                *(f"-ffile-prefix-map={folder}={name}" for folder, name in ((native, "native"), (WORK, "work"))),
            ]
        ),
        "CMAKE_SHARED_LINKER_FLAGS": link,
        "CMAKE_EXE_LINKER_FLAGS": link,
        "CMAKE_CXX_STANDARD_LIBRARIES": "-Wl,--as-needed -lpthread -ldl -lrt",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "SMDP_TORCH": "OFF",
        "SMDP_TENSORFLOW": "OFF",
        "SMDP_ADAPTERS": str(adapters),
    }


def _run(command: list[str], environment: dict[str, str]) -> None:
    ran = subprocess.run(
        command, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3600
    )
    if ran.returncode != 0:
        sys.exit(f"{ran.stdout}\nrelease: failed: {' '.join(command[:8])} ...")


def _check(python: Path, target: Path, environment: dict[str, str]) -> None:
    files = [str(one) for one in sorted(target.iterdir())]
    _run([str(python), "-m", "twine", "check", "--strict", *files], environment)
    launcher = next(target.glob("smdp_launch-*.whl"))
    if launcher.stat().st_size > LARGEST_LAUNCHER:
        sys.exit(f"{launcher.name} has {launcher.stat().st_size} bytes, more than {LARGEST_LAUNCHER}")


def _report(target: Path) -> None:
    lines = []
    for path in sorted(target.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.name}\n")
        print(f"{path.stat().st_size / 1e6:7.2f} MB  {digest[:16]}  {path.name}")
    (target / "SHA256SUMS").write_text("".join(lines), encoding="ascii")
    print(f"release {version()}: twine and auditwheel ({PLATFORM}) accept it; {target}")


if __name__ == "__main__":
    main()
