"""Broken environments, made for real: the launch ends with one sentence and a command, and `doctor` names the cause."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.doctor.limits import raise_open_files
from smdp_launch.errors import ExitCode
from tests.conftest import JOB, write_job
from tests.support.environments import ENGINE, LAUNCHER, LOCAL, TORCH, Environment

runs = pytest.mark.runs
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, or drop capabilities")

HERE = ("launch", "--local", "--hosts", "2", "--workers-per-host", "1")
TRAINS = """\
import torch
import torch.distributed as dist
import smdistributed.dataparallel.torch.torch_smddp

dist.init_process_group("smddp")
values = torch.ones(1)
dist.all_reduce(values)
print(f"sum {values.item():g}", flush=True)
"""
#: A script whose data loader sends 6 MB through /dev/shm.
LOADS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    for batch, in DataLoader(TensorDataset(torch.zeros(32, 3, 128, 128)), batch_size=32, num_workers=1):
        print(f"loaded {len(batch)}", flush=True)
"""
BROKEN = 'raise ImportError("libfoo.so.3: cannot open shared object file: No such file or directory")\n'
HINT = " (add --find-links FOLDER if smdp-launch came from a folder of wheels)"
WITHOUT_SYS_ADMIN = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture(scope="module")
def launcher_alone(folder: Path) -> Environment:
    return Environment(folder / "alone", LAUNCHER)


@pytest.fixture(scope="module")
def with_local(folder: Path) -> Environment:
    """All but torch and the engine."""
    return Environment(folder / "local", *LOCAL)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Environment:
    return Environment(folder / "whole", *LOCAL, ENGINE, TORCH)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    write_job(tmp_path, JOB.replace("{epochs: 2}", "{}"), TRAINS)
    return tmp_path


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache of its own, so that no earlier import counts."""
    return {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


def pip(environment: Environment) -> str:
    return f"{environment.python} -m ensurepip && {environment.python} -m pip install"


def one_line_error(ran: subprocess.CompletedProcess[str], folder: Path) -> str:
    """The error, which is one line, alone in the output. Nothing was started or written."""
    assert ran.returncode == ExitCode.ENVIRONMENT, ran.stdout + ran.stderr
    assert ran.stdout == ""
    assert not (folder / ".smdp").exists()
    (line,) = ran.stderr.splitlines()
    return line.removeprefix("smdp-launch: ")


def results(environment: Environment, cwd: Path, code: ExitCode, **options: Any) -> list[dict[str, Any]]:
    ran = environment.run("doctor", "--json", cwd=cwd, **options)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert ran.stderr == ""
    found: list[dict[str, Any]] = json.loads(ran.stdout)["results"]
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        HERE,
        pytest.param(("rehearse", "kill"), marks=runs),
        ("local", "up"),
        pytest.param(("scale", "--trace", "bert-large"), marks=runs),
    ],
)
def test_launcher_alone_names_what_is_missing_and_the_command(
    launcher_alone: Environment, job: Path, arguments: tuple[str, ...]
) -> None:
    line = one_line_error(launcher_alone.run(*arguments, cwd=job), job)
    ours = "local runs need cbor2, crcmod-plus, moto"
    expected = {
        "local": f"{ours} and smdp-entrypoint, which are not installed in this environment; to install them{HINT}, "
        f"run: {pip(launcher_alone)} 'smdp-launch[local]==0.1.0'",
        "scale": f"the engine is not installed: the cost model is part of the engine; install it{HINT} with "
        f"{pip(launcher_alone)} smdp-engine==0.1.0",
    }
    everything = (
        f"{ours}, smdp-entrypoint, smdp-engine and torch, which are not installed in this environment; to install "
        f"them{HINT}, run: {pip(launcher_alone)} 'smdp-launch[local]==0.1.0' torch"
    )
    assert line == expected.get(arguments[0], everything)


def test_local_cloud_without_its_packages_names_the_missing_module(launcher_alone: Environment, job: Path) -> None:
    """For commands that follow a job of an environment that had them."""
    (job / ".smdp").mkdir(mode=0o700)
    entry = {"job": "old", "where": "local", "job_file": "job.yaml", "plan_hash": "", "time": "2026-01-01T00:00:00Z"}
    (job / ".smdp" / "history.jsonl").write_text(json.dumps({**entry, "state": ".smdp/local"}) + "\n")
    (job / ".smdp" / "local").mkdir(mode=0o700)
    ran = launcher_alone.run("status", cwd=job)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr == (
        "smdp-launch: The local cloud did not start: No module named 'moto'. To find the cause in this environment, "
        "run: smdp-launch doctor.\n"
    )


@runs
def test_launch_of_script_without_framework_needs_the_extra_alone(launcher_alone: Environment, job: Path) -> None:
    (job / "src" / "train.py").write_text("print('trained')\n")
    line = one_line_error(launcher_alone.run(*HERE, cwd=job), job)
    assert line.endswith(f"run: {pip(launcher_alone)} 'smdp-launch[local]==0.1.0'")


@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=runs)])
def test_missing_framework_is_named(with_local: Environment, job: Path, framework: str) -> None:
    (job / "src" / "train.py").write_text(f"import {framework}\n")
    if framework == "tensorflow":
        text = JOB.replace('name: pytorch, version: "2.0.1"', 'name: tensorflow, version: "2.14.1"')
        (job / "job.yaml").write_text(text.replace("{epochs: 2}", "{}"))
    title = {"torch": "torch", "tensorflow": "TensorFlow"}[framework]
    line = one_line_error(with_local.run(*HERE, cwd=job), job)
    assert line == (
        f"the script imports {title}, which is not installed in this environment; to fix this, run: "
        f"{pip(with_local)} {framework}"
    )


@runs
def test_framework_of_requirements_file_is_not_required(with_local: Environment, job: Path) -> None:
    """The hosts install it. That fails here at once, since this environment has no pip."""
    (job / "src" / "train.py").write_text("import torch\n")
    (job / "src" / "requirements.txt").write_text("torch==2.13.0\n")
    ran = with_local.run(*HERE, cwd=job)
    assert ran.returncode == ExitCode.JOB_FAILED, ran.stderr
    assert "is not installed in this environment" not in ran.stderr


@runs
def test_framework_that_is_imported_in_a_function_is_not_required(with_local: Environment, job: Path) -> None:
    (job / "src" / "train.py").write_text("def train():\n    import torch\n\nprint('trained')\n")
    ran = with_local.run(*HERE, cwd=job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr


@runs
def test_script_module_that_is_missing_is_named_after_the_run(with_local: Environment, job: Path) -> None:
    (job / "src" / "train.py").write_text("import sklearn.linear_model\n")
    ran = with_local.run(*HERE, cwd=job)
    assert ran.returncode == ExitCode.JOB_FAILED
    assert f"environment  sklearn is not installed here; run: {pip(with_local)} scikit-learn (or add" in ran.stdout


def test_broken_torch_is_reported_before_the_run(folder: Path, job: Path, cache: dict[str, str]) -> None:
    environment = Environment(folder / "broken", *LOCAL, ENGINE)
    environment.package("torch", BROKEN)
    line = one_line_error(environment.run(*HERE, cwd=job, **cache), job)
    assert line == (
        "torch is installed but cannot be imported: ImportError: libfoo.so.3: cannot open shared object file: "
        f"No such file or directory; to fix this, run: {pip(environment)} --force-reinstall torch"
    )
    first, *others = results(environment, job, ExitCode.ENVIRONMENT, **cache)
    assert (first["check"], first["verdict"]) == ("torch", "error")
    assert "libfoo.so.3" in first["found"] and "libfoo.so.3" in first["fix"]
    consequences = {one["check"]: one["verdict"] for one in others if one["check"] in ("torch adapter", "engine sum")}
    assert consequences == {"torch adapter": "not checked", "engine sum": "not checked"}


@runs
def test_torch_that_crashes_is_reported_before_the_run(folder: Path, job: Path, cache: dict[str, str]) -> None:
    environment = Environment(folder / "crashing", *LOCAL, ENGINE)
    environment.package("torch", "import os\nos.abort()\n")
    line = one_line_error(environment.run(*HERE, cwd=job, **cache), job)
    assert line.startswith("torch is installed but cannot be imported: it crashed with SIGABRT; to fix this, run: ")


@runs
def test_engine_that_does_not_fit_torch_is_reported_before_the_run(
    folder: Path, job: Path, cache: dict[str, str]
) -> None:
    environment = Environment(folder / "old", *LOCAL, ENGINE, TORCH)
    text = (environment.packages / "torch" / "version.py").read_text()
    environment.change_file("torch/version.py", re.sub(r"(?m)^__version__ = .*$", "__version__ = '1.9.0'", text))
    no_compiler = {"PATH": str(folder), **cache}  # otherwise the engine may build an adapter
    line = one_line_error(environment.run(*HERE, cwd=job, **no_compiler), job)
    assert line.startswith("the installed smdp-engine fits torch 2.")
    assert f", and torch 1.9.0 is installed; to fix this, run: {pip(environment)} 'torch==2." in line
    first, *_ = results(environment, job, ExitCode.ENVIRONMENT, **no_compiler)
    assert (first["check"], first["verdict"]) == ("torch adapter", "error")


@runs
def test_whole_environment_trains_and_remembers_the_import(
    whole: Environment, job: Path, cache: dict[str, str]
) -> None:
    for _ in range(2):
        ran = whole.run(*HERE, cwd=job, **cache)
        assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
        assert "sum 2" in ran.stdout
    (remembered,) = Path(cache["XDG_CACHE_HOME"]).rglob("imports.json")
    assert len(json.loads(remembered.read_text())) == 1
    found = {one["check"]: one["verdict"] for one in results(whole, job, ExitCode.OK, **cache)}
    assert found["torch"] == found["engine"] == found["torch adapter"] == found["engine sum"] == "ok"


@runs
def test_doctor_in_launcher_s_own_environment_names_the_packages_first(launcher_alone: Environment, job: Path) -> None:
    first, second, *others = results(launcher_alone, job, ExitCode.ENVIRONMENT)
    assert (first["check"], first["verdict"]) == ("packages", "error")
    assert first["found"].endswith("missing: cbor2, crcmod-plus, moto, smdp-entrypoint, smdp-engine")
    assert (second["check"], second["verdict"]) == ("torch", "error")
    assert {one["verdict"] for one in others if one["check"] == "engine"} == {"not checked"}


@runs
def test_few_descriptors_end_with_a_command_that_works(with_local: Environment, job: Path) -> None:
    (job / "src" / "train.py").write_text("print('trained')\n")
    few = ("prlimit", "--nofile=44:44")
    line = one_line_error(with_local.run("launch", "--local", "--hosts", "8", cwd=job, within=few), job)
    reason, command = line.split("; to fix this, run: ")
    assert reason == "this shell allows 44 open files for each process, and a local run of 8 ranks needs 56"
    raised = raise_open_files()
    if raised is None:  # the limit of this machine's containers cannot be raised from inside
        assert command == "smdp-launch launch --local --hosts 1 --workers-per-host 4"
        fixed = with_local.run(*shlex.split(command)[1:], cwd=job, within=few)
    else:
        assert command == raised
        shell = (*few, "sh", "-c", f'{raised} && exec "$@"', "sh")
        fixed = with_local.run("launch", "--local", "--hosts", "8", cwd=job, within=shell)
    assert fixed.returncode == ExitCode.OK, fixed.stdout + fixed.stderr


@runs
def test_doctor_with_few_descriptors_names_the_limit_first(with_local: Environment, job: Path) -> None:
    limited = ("prlimit", "--nofile=40:40")
    first, *_ = results(with_local, job, ExitCode.ENVIRONMENT, within=limited)
    assert (first["check"], first["verdict"]) == ("open files", "error")
    assert first["found"].startswith("this shell allows 40 open files")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 40


@runs
@needs_root
def test_refused_namespaces_are_a_warning_with_a_command(with_local: Environment, job: Path) -> None:
    found = results(with_local, job, ExitCode.ENVIRONMENT, within=WITHOUT_SYS_ADMIN)
    first = next(one for one in found if one["verdict"] == "warning")
    assert first["check"] == "namespaces"
    assert "unshare: Operation not permitted" in first["found"]
    assert first["command"].startswith("docker run --cap-add SYS_ADMIN ")
    fixed = {one["check"]: one["verdict"] for one in results(with_local, job, ExitCode.ENVIRONMENT)}
    assert fixed["namespaces"] == "ok"


def _mounted(folder: Path, options: str, *more: str) -> tuple[str, ...]:
    """A shell that runs a command with a small file system on ``folder``."""
    mount = f"mount -t tmpfs -o {options} tmpfs {folder}"
    return ("unshare", "--mount", "sh", "-c", " && ".join([mount, *more, 'exec "$@"']), "sh")


@runs
@needs_root
def test_folder_that_cannot_be_written_ends_with_a_command(with_local: Environment, job: Path, tmp_path: Path) -> None:
    (job / "src" / "train.py").write_text("print('trained')\n")
    home = tmp_path / "home"
    home.mkdir()
    read_only = _mounted(home, "size=1m,ro", f"cd {home}")
    ran = with_local.run("launch", "--local", str(job / "job.yaml"), cwd=job, within=read_only, HOME=str(home))
    line = one_line_error(ran, job)
    assert line == (
        f"{home} is not writable, and local runs keep their state there; run: "
        f'cd "$(mktemp -d)" && smdp-launch launch --local {job}/job.yaml'
    )
    first, *_ = results(with_local, job, ExitCode.ENVIRONMENT, within=read_only, HOME=str(home))
    assert (first["check"], first["verdict"]) == ("state folder", "error")
    elsewhere = with_local.folder.parent / "elsewhere"
    elsewhere.mkdir()
    moved = _mounted(home, "size=1m,ro", f"cd {elsewhere}")
    fixed = with_local.run("launch", "--local", str(job / "job.yaml"), cwd=job, within=moved, HOME=str(home))
    assert fixed.returncode == ExitCode.OK, fixed.stdout + fixed.stderr
    shutil.rmtree(elsewhere)


@runs
@needs_root
def test_small_shared_memory_ends_with_the_command_that_enlarges_it(whole: Environment, job: Path) -> None:
    (job / "src" / "train.py").write_text(LOADS)
    small = _mounted(Path("/dev/shm"), "size=1m")
    arguments = ("launch", "--local", "--hosts", "1", "--workers-per-host", "1")
    shared = {"SMDP_LOCAL_ISOLATION": "tree"}
    ran = whole.run(*arguments, cwd=job, within=small, **shared)
    assert ran.returncode == ExitCode.JOB_FAILED
    command = "mount -o remount,size=1G /dev/shm"
    assert f"environment  the script needs more shared memory in /dev/shm; run: {command}\n" in ran.stdout
    warned = [one["command"] for one in results(whole, job, ExitCode.OK, within=small, **shared)]
    assert command in warned
    fixed = whole.run(*arguments, cwd=job, within=_mounted(Path("/dev/shm"), "size=1m", command), **shared)
    assert fixed.returncode == ExitCode.OK, fixed.stdout + fixed.stderr
    own = whole.run(*arguments, cwd=job, within=small)  # hosts with namespaces have their own
    assert own.returncode == ExitCode.OK, own.stdout + own.stderr
