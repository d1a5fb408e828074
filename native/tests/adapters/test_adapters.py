"""Which adapter a framework gets, and how one is built where none fits: on a copy of the installed package."""

import dataclasses
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest
import ranks
from installation import SHIPPED, Installation

from smdp_engine import adapters
from smdp_engine.adapters import files

pytestmark = pytest.mark.skipif(SHIPPED is None, reason="the engine is installed without an adapter for torch")

CHECK = """
import sys
from smdp_engine import adapters
verdict = adapters.check("torch")
assert "torch" not in sys.modules
print(verdict.state, verdict.file, verdict.command, verdict.sentence, sep="\\n")
"""


def test_adapter_of_the_package_is_found_without_importing_torch() -> None:
    ran = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, timeout=60, check=True)
    state, file, command, _ = ran.stdout.splitlines()
    assert (state, command) == ("shipped", "None")
    found = adapters.installed("torch")
    assert found is not None and SHIPPED is not None
    assert Path(file) == SHIPPED.path == files.FOLDER / files.name_of(found)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"version": "2.14.1+cu130"}, "torch-2.14-cxx11abi1.so"),
        ({"version": "2.14.0"}, "torch-2.14-cxx11abi1.so"),
        ({"version": "2.14.0", "cxx11_abi": False}, "torch-2.14-cxx11abi0.so"),
        ({"version": "2.0.1+cu117", "cxx11_abi": False}, "torch-2.0-cxx11abi0-cp310.so"),
        ({"version": "2.15.0.dev20260801+cpu"}, "torch-2.15.0.dev20260801+cpu-cxx11abi1.so"),
        ({"version": "2.15.0a0+git1234567"}, "torch-2.15.0a0+git1234567-cxx11abi1.so"),
        ({"framework": "tensorflow", "version": "2.15.0.post1"}, "tensorflow-2.15-cxx11abi1.so"),
    ],
)
def test_name_says_what_an_adapter_fits(change: "dict[str, object]", name: str) -> None:
    base = adapters.Installed("torch", "2.13.0", Path("/nowhere"), True, "cp310")
    assert files.name_of(dataclasses.replace(base, **change)) == name  # type: ignore[arg-type]


def test_of_several_adapters_the_one_of_the_installed_torch_is_chosen(without: Installation) -> None:
    assert SHIPPED is not None
    folder = without.folder / "installed" / "smdp_engine" / "_adapters"
    for version in ("2.0", "2.99", SHIPPED.version):
        shutil.copyfile(SHIPPED.path, folder / SHIPPED.path.name.replace(SHIPPED.version, version))
    state, file, *_ = without.run("-c", CHECK)
    assert (state, Path(file)) == ("shipped", folder / SHIPPED.path.name)


def test_without_a_fitting_adapter_the_verdict_names_what_there_is_and_the_command(without: Installation) -> None:
    folder = without.folder / "installed" / "smdp_engine" / "_adapters"
    (folder / "torch-2.99-cxx11abi1.so").write_bytes(b"")
    for python in ("cp310", "cp38"):
        (folder / f"torch-2.0-cxx11abi0-{python}.so").write_bytes(b"")
    found = adapters.installed("torch")
    assert found is not None
    state, _, command, sentence = without.run("-c", CHECK)
    assert (state, command) == ("buildable", f"{sys.executable} -m smdp_engine.adapters build torch")
    assert f"no adapter for torch {found.version} " in sentence
    assert "this installation has 2.0 (Python 3.8, 3.10), 2.99." in sentence


def test_without_a_compiler_the_error_is_one_sentence_with_the_commands_that_help(without: Installation) -> None:
    (without.folder / "installed" / "smdp_engine" / "_adapters" / "torch-2.99-cxx11abi1.so").write_bytes(b"")
    empty = without.folder / "bin"
    empty.mkdir()
    body = "from smdp_engine import torch_backend; torch_backend.register()"
    last = without.run("-c", body, code=1, PATH=str(empty), CXX="")[-1]
    assert last.startswith("smdp_engine.adapters.choice.AdapterMissing: smdp-engine has no adapter for torch 2.")
    install = f"apt-get install -y g++ && {sys.executable} -m smdp_engine.adapters build torch."
    assert f"no C++ compiler is on PATH. Install one: {install}" in last
    assert last.endswith(f"Or install a version that it has: {sys.executable} -m pip install 'torch==2.99.*'")


@pytest.mark.parametrize(
    ("config", "installs"),
    [
        ("uv = 0.13.9\n", "uv pip install --python {python} 'torch==2.99.*'"),
        ("", "{python} -m ensurepip && {python} -m pip install 'torch==2.99.*'"),
    ],
    ids=["uv", "venv"],
)
def test_environment_without_pip_gets_a_command_that_it_has(without: Installation, config: str, installs: str) -> None:
    (without.folder / "installed" / "smdp_engine" / "_adapters" / "torch-2.99-cxx11abi1.so").write_bytes(b"")
    prefix = without.folder / "an environment"
    prefix.mkdir()
    (prefix / "pyvenv.cfg").write_text(f"home = /usr/bin\n{config}")
    body = f"""
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "pip" else find(name, *more)
sys.prefix, sys.executable = {str(prefix)!r}, {str(prefix / "bin" / "python")!r}
from smdp_engine import adapters
print(adapters.check("torch").sentence)
"""
    sentence = without.run("-c", body, PATH=str(without.folder), CXX="")[-1]
    assert sentence.endswith("Or install a version that it has: " + installs.format(python=f"'{prefix}/bin/python'"))


def test_processes_that_need_the_same_adapter_build_it_once(without: Installation) -> None:
    processes = [without.start() for _ in range(4)]
    outcomes = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, outcomes
    assert without.built() == 1
    assert len({output for output, _ in outcomes}) == 1
    reported = [line for _, errors in outcomes for line in errors.splitlines()]
    assert len(reported) == 2, reported
    assert reported[0].startswith("smdp: building the adapter for torch 2.") and "built the adapter" in reported[1]
    built = Path(outcomes[0][0].strip())
    assert SHIPPED is not None and built.read_bytes() == SHIPPED.path.read_bytes()
    assert stat.S_IMODE(built.parent.stat().st_mode) == 0o700
    assert without.run("-c", CHECK)[:2] == ["cached", str(built)]


@pytest.mark.parametrize("damage", ["shortened", "changed", "no digest"])
def test_damaged_adapter_in_the_cache_is_built_again(without: Installation, damage: str) -> None:
    built = Path(without.run()[0])
    whole = built.read_bytes()
    if damage == "no digest":
        built.with_name(f"{built.name}.sha256").unlink()
    else:
        built.write_bytes(whole[:1000] if damage == "shortened" else whole[:-1] + bytes([whole[-1] ^ 1]))
    (built.parent / f"{built.name}.1.part").write_bytes(b"of a process that was killed")
    assert without.run("-c", CHECK)[0] == "buildable"
    without.run()
    assert built.read_bytes() == whole and without.built() == 2
    assert not list(built.parent.glob("*.part"))


def test_compiler_that_fails_is_named_with_its_error_and_log(without: Installation) -> None:
    without.compiler.write_text("#!/bin/sh\necho 'adapter.cc:1: error: no such thing'\nexit 1\n")
    last = without.run(code=1)[-1]
    assert f"{without.compiler} could not build it (adapter.cc:1: error: no such thing; all of it: " in last
    log = Path(last.partition("all of it: ")[2].partition(")")[0])
    assert log.read_text() == "adapter.cc:1: error: no such thing\n"
    assert not list(log.parent.glob("*.part"))


def test_processes_that_wait_for_a_build_share_its_failure(without: Installation) -> None:
    script = without.compiler.read_text().splitlines()
    without.compiler.write_text("\n".join([*script[:2], "sleep 3", "echo error: none", "exit 1", ""]))
    processes = [without.start() for _ in range(4)]
    outcomes = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [1] * 4, outcomes
    assert all("could not build it (error: none;" in errors for _, errors in outcomes), outcomes
    assert without.built() == 1


def test_cache_that_others_can_write_or_that_cannot_be_written_is_refused(without: Installation) -> None:
    built = Path(without.run()[0])
    built.parent.chmod(0o777)
    assert without.run("-c", CHECK)[0] == "buildable"
    last = without.run(code=1)[-1]
    assert "can be written by other users" in last and "export SMDP_ADAPTER_CACHE=FOLDER" in last
    file = without.folder / "file"
    file.touch()
    last = without.run(code=1, SMDP_ADAPTER_CACHE=str(file))[-1]
    assert "Not a directory" in last or "File exists" in last
    assert "export SMDP_ADAPTER_CACHE=FOLDER" in last


def test_own_cache_that_others_can_write_is_usable_after_the_command_of_the_error(without: Installation) -> None:
    mine = without.folder / "of mine"
    mine.mkdir()
    mine.chmod(0o775)
    command = f"chmod go-w '{mine}'"
    assert f"Forbid that: {command}, or name another" in without.run(code=1, SMDP_ADAPTER_CACHE=str(mine))[-1]
    subprocess.run(["bash", "-c", command], check=True, timeout=60)
    assert Path(without.run(SMDP_ADAPTER_CACHE=str(mine))[0]).parent.parent == mine


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/smdp-engine"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/ann/.cache/smdp-engine"),
        ({"SMDP_ADAPTER_CACHE": "~/adapters"}, "/home/ann/adapters"),
        ({"SMDP_ADAPTER_CACHE": "adapters"}, f"{Path.cwd()}/adapters"),
    ],
)
def test_folder_of_the_cache_is_the_same_in_every_current_folder(
    variables: "dict[str, str]", folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SMDP_ADAPTER_CACHE", raising=False)
    for name, value in {"HOME": "/home/ann", **variables}.items():
        monkeypatch.setenv(name, value)
    assert str(adapters.cache_folder().parent) == folder


@pytest.mark.parametrize("compiler", ["/nowhere/g++", "'unclosed g++", "true"])
def test_compiler_that_cannot_build_gives_a_sentence(without: Installation, compiler: str) -> None:
    last = without.run(code=1, CXX=compiler)[-1]
    assert last.startswith("smdp-engine has no adapter for torch"), last
    assert ("correct CXX or unset it" in last) == (compiler != "true"), last
    assert ("wrote no file" in last) == (compiler == "true"), last


def test_empty_variable_of_the_compiler_counts_as_unset(without: Installation) -> None:
    assert "No C++ compiler is on PATH" in without.run(code=1, CXX=" ", PATH=str(without.folder))[-1]


def test_interrupted_build_ends_without_traceback(without: Installation) -> None:
    without.compiler.write_text("#!/bin/sh\nsleep 60\n")
    building = without.start()
    assert building.stderr is not None
    assert "building the adapter" in building.stderr.readline()
    building.send_signal(signal.SIGINT)
    assert building.communicate(timeout=60) == ("", "")
    assert building.returncode == 130


def test_importing_the_engine_imports_neither_its_adapters_nor_a_framework() -> None:
    body = "import sys, smdp_engine; print(sorted(n for n in sys.modules if n.startswith(('torch', 'smdp_engine.'))))"
    ran = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "['smdp_engine._library']"


@pytest.mark.runs
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_ranks_build_a_real_adapter_once_and_sum_with_it(without: Installation) -> None:
    compiler: Optional[str] = shutil.which("g++")
    assert compiler is not None
    env = {
        "PYTHONPATH": str(without.folder / "installed"),
        "SMDP_ADAPTER_CACHE": str(without.cache),
        "CXX": compiler,
    }
    body = """
    import smdp_engine
    dist.init_process_group("smddp")
    t = torch.full((70001,), float(rank + 1)); dist.all_reduce(t)
    assert (t == 3).all()
    print("summed with", smdp_engine.__file__)
    """
    outcomes = ranks.start([1, 1], body, env=env, cold=True).finish(timeout=600)
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    where = f"summed with {without.folder / 'installed' / 'smdp_engine' / '__init__.py'}"
    assert all(where in outcome.out for outcome in outcomes)
    reported = "".join(outcome.err for outcome in outcomes)
    assert reported.count("smdp: building the adapter for torch") == 1
    assert len(list(without.cache.glob("*/torch-*.so"))) == 1


def test_list_may_be_read_in_part() -> None:
    command = f"{shlex.quote(sys.executable)} -m smdp_engine.adapters | head -c 1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
