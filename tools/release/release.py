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
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adapters import Builder, toolchain
from machines import Machine, machine_named
from version import differing, version

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "release"
HERE = Path(__file__).resolve().parent
DISTRIBUTIONS = (".", "containers/entrypoint", "native")
LARGEST_LAUNCHER = 3 << 20
# The frameworks bring these; each process that loads an adapter has them already.
NOT_OURS = ("libtorch*.so", "libc10.so", "libtensorflow*.so*")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="", help="versions of torch, separated by spaces")
    parser.add_argument("--tensorflow", default="", help="versions of TensorFlow, separated by spaces")
    parser.add_argument("--python", default="", help="Pythons of the adapters for torch before 2.6, such as 3.10")
    parser.add_argument("--machine", default="x86_64", help="processors of the engine's wheels: x86_64, aarch64")
    parser.add_argument("--target", default=ROOT / "dist" / "release", type=Path)
    chosen = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    source = _export()
    problems = differing(source)
    if problems:
        sys.exit("\n".join(problems))
    python = _tools()
    wanted = {"torch": chosen.torch.split(), "tensorflow": chosen.tensorflow.split()}
    machines = [machine_named(one) for one in chosen.machine.split()]
    for one in machines:
        _adapters(source / "native", one, wanted, chosen.python.split())
    shutil.rmtree(chosen.target, ignore_errors=True)
    chosen.target.mkdir(parents=True)
    environment = _environment(python)
    for folder in DISTRIBUTIONS:
        _build(python, source / folder, chosen.target, environment, machines if folder == "native" else None)
    _check(python, chosen.target, environment)
    _report(chosen.target, machines)


def _adapters(native: Path, machine: Machine, wanted: dict[str, list[str]], pythons: list[str]) -> None:
    """Build the adapters for a machine into its folder `adapters`, and remove those of other versions."""
    work = WORK / machine.name
    adapters = work / "adapters"
    adapters.mkdir(parents=True, exist_ok=True)
    _require_compiler(machine)
    sysroot = [str(work / "sysroot"), machine.debian, machine.program("gcc")]
    subprocess.run(["sh", str(HERE / "sysroot.sh"), *sysroot], check=True)
    builder = Builder(native, work, adapters, machine)
    versions = [(framework, one) for framework, found in wanted.items() for one in found]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = {
            path.name
            for paths in pool.map(lambda one: builder.build(one[0], one[1], pythons), versions)
            for path in paths
        }
    for other in adapters.glob("*.so"):
        if other.name not in built:
            other.unlink()


def _require_compiler(machine: Machine) -> None:
    if shutil.which(machine.program("g++")) is None:
        package = "g++" if machine.is_this else f"g++-{machine.name}-linux-gnu"
        sys.exit(f"{machine.program('g++')} is missing; to install it, run: apt-get install {package}")


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


def _build(
    python: Path, folder: Path, target: Path, environment: dict[str, str], machines: list[Machine] | None
) -> None:
    print(f"release: build {folder.relative_to(WORK)}", flush=True)
    build = [str(python), "-m", "build", "--no-isolation", str(folder)]
    _run([*build, "--sdist", "--outdir", str(target)], environment)
    if machines is None:
        _run([*build, "--wheel", "--outdir", str(target)], environment)
        return
    for machine in machines:
        work = WORK / machine.name
        raw = work / "raw"
        shutil.rmtree(raw, ignore_errors=True)
        settings = {
            "build-dir": str(work / "core"),
            **{f"cmake.define.{name}": value for name, value in _core(folder, machine).items()},
        }
        options = [f"--config-setting={name}={value}" for name, value in settings.items()]
        tags = {} if machine.is_this else {"_PYTHON_HOST_PLATFORM": f"linux-{machine.name}"}
        _run([*build, "--wheel", "--outdir", str(raw), *options], {**environment, **tags})
        # Refuses symbols that are newer than the tag allows.
        repair = [str(python), "-m", "auditwheel", "repair", "--plat", machine.platform, "--only-plat"]
        repair += ["--wheel-dir", str(target), *(f"--exclude={name}" for name in NOT_OURS)]
        _run([*repair, *(str(one) for one in raw.glob("*.whl"))], environment)


def _core(native: Path, machine: Machine) -> dict[str, str]:
    """CMake's variables: the compiler's own C++ library, linked statically, and the C library of the sysroot."""
    work = WORK / machine.name
    sysroot = work / "sysroot"
    root, compiler = sysroot / "root", machine.program("g++")
    asked = subprocess.run([compiler, "-print-file-name=libstdc++.a"], check=True, capture_output=True, text=True)
    headers = machine.cxx_headers(Path(asked.stdout.strip()).resolve().parent.name)
    libraries = [one for one in toolchain(sysroot, machine).link if one.startswith(("-B", "-L")) and "/gcc/" not in one]
    link = " ".join([f"-L{sysroot}/unwinder", *libraries, f"{sysroot}/old_glibc.o", "-Wl,--build-id=sha1"])
    foreign = {} if machine.is_this else {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": machine.name}
    return {
        **foreign,
        "CMAKE_CXX_COMPILER": compiler,
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
        "SMDP_ADAPTERS": str(work / "adapters"),
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
    without = [one.name for one in target.glob("*.whl") if not _has_licence(one)]
    if without:
        sys.exit(f"the licence is missing in {', '.join(without)}: each project needs its file LICENSE")
    launcher = next(target.glob("smdp_launch-*.whl"))
    if launcher.stat().st_size > LARGEST_LAUNCHER:
        sys.exit(f"{launcher.name} has {launcher.stat().st_size} bytes, more than {LARGEST_LAUNCHER}")


def _has_licence(wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        licences = [one for one in archive.namelist() if one.endswith(".dist-info/licenses/LICENSE")]
        return [archive.read(one) for one in licences] == [(ROOT / "LICENSE").read_bytes()]


def _report(target: Path, machines: list[Machine]) -> None:
    lines = []
    for path in sorted(target.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.name}\n")
        print(f"{path.stat().st_size / 1e6:7.2f} MB  {digest[:16]}  {path.name}")
    (target / "SHA256SUMS").write_text("".join(lines), encoding="ascii")
    print(
        f"release {version()}: twine and auditwheel ({', '.join(one.platform for one in machines)}) accept it; {target}"
    )


if __name__ == "__main__":
    main()
