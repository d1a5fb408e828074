"""On Windows and macOS, as far as Linux can show it, every command works but those that run jobs locally."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pexpect
import pytest

import smdp_launch
from smdp_launch.errors import ExitCode
from smdp_launch.testing import LocalCloud, local_cloud
from tests.conftest import ROOT, clean_environment, write_job
from tests.support.jobs.stopped import CHECKPOINT, COUNTS
from tests.support.other_system import SYSTEMS
from tests.support.waiting import wait_for

Ran = subprocess.CompletedProcess[str]
on_each_system = pytest.mark.parametrize("system", SYSTEMS)

#: What only Linux imports: the local cloud's server and its jobs.
LINUX_ONLY = tuple(f"smdp_launch.localcloud.{one}" for one in ("server", "services", "runtime"))
TRAINS = """\
import os
print("trained in", os.environ["SM_CURRENT_HOST"], flush=True)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.bin"), "wb") as model:
    model.write(b"weights")
"""
WAITS = """\
import time
for _ in range(3000):
    print("waiting", flush=True)
    time.sleep(0.1)
"""


def process_of(system: str, known: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a process that runs the launcher as on the system."""
    paths = [str(ROOT), str(ROOT / "containers" / "entrypoint"), known.get("PYTHONPATH", "")]
    environment = {**known, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return [sys.executable, "-m", "tests.support.other_system", system], environment


def run(system: str, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> Ran:
    command, given = process_of(system, clean_environment() if environment is None else environment)
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=given,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def succeeded(ran: Ran) -> str:
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    return ran.stdout


@on_each_system
def test_the_modules_of_other_systems_import(system: str, tmp_path: Path) -> None:
    names = [one.name for one in pkgutil.walk_packages(smdp_launch.__path__, "smdp_launch.")]
    wanted = [one for one in names if not one.startswith(LINUX_ONLY) and not one.endswith("__main__")]
    code = f"import importlib\nfor one in {wanted!r}:\n    importlib.import_module(one)\nprint('imported')"
    assert succeeded(run(system, tmp_path, "-c", code)) == "imported\n"
    assert len(wanted) > 250


@on_each_system
@pytest.mark.parametrize(
    "arguments",
    [
        ["launch", "--local", "--network", "1gbit"],
        ["rehearse", "kill"],
        ["local", "up"],
        pytest.param(["local", "down"], marks=pytest.mark.runs),
        pytest.param(["local", "status"], marks=pytest.mark.runs),
    ],
    ids=" ".join,
)
def test_local_runs_name_what_they_need_and_change_nothing(job_folder: Path, system: str, arguments: list[str]) -> None:
    before = sorted(job_folder.rglob("*"))
    ran = run(system, job_folder, *arguments)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert "needs Linux: " in ran.stderr
    assert {"windows": "wsl --install", "macos": "docker run"}[system] in ran.stderr
    assert sorted(job_folder.rglob("*")) == before


@on_each_system
def test_a_local_run_from_python_is_refused_alike(job_folder: Path, system: str) -> None:
    code = """
import smdp_launch
for call in (lambda: smdp_launch.plan("job.yaml", local=True), lambda: smdp_launch.testing.local_cloud().__enter__()):
    try:
        call()
    except smdp_launch.EnvironmentProblem as error:
        print(error)
"""
    lines = succeeded(run(system, job_folder, "-c", code.replace("import smdp", "import smdp_launch.testing, smdp", 1)))
    assert [one.partition(" needs Linux")[0] for one in lines.splitlines()] == ["a local run", "the local cloud"]


@pytest.mark.parametrize("system", ["windows", pytest.param("macos", marks=pytest.mark.runs)])
def test_commands_without_a_service(job_folder: Path, system: str) -> None:
    assert succeeded(run(system, job_folder, "validate")) == "job.yaml: valid\n"
    planned = run(system, job_folder, "plan", "--out", "plan.json")
    assert "small-" in succeeded(planned)
    assert "--local" not in planned.stderr
    assert json.loads((job_folder / "plan.json").read_text())["source"]["files"] == [
        {"name": "train.py", "bytes": len("print('trained')\n")}
    ]
    (job_folder / "src" / "train.py").write_text("import torch\n")
    assert "wrote other.yaml" in succeeded(run(system, job_folder, "init", "src", "--yes", "--output", "other.yaml"))
    for arguments in (["schema"], ["explain", "SMDP301"], ["catalog", "instances"], ["completion", "bash"], ["list"]):
        succeeded(run(system, job_folder, *arguments))


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    """A server on this Linux, in place of AWS."""
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="bucket")
        boto3.client("s3").put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        yield made


@on_each_system
@pytest.mark.runs
def test_a_job_on_aws_from_its_check_to_its_model(cloud: LocalCloud, tmp_path: Path, system: str) -> None:
    write_job(tmp_path, script=TRAINS)
    environment = {**os.environ, "COLUMNS": "100"}

    def command(*arguments: str) -> str:
        return succeeded(run(system, tmp_path, *arguments, environment=environment))

    command("preflight")
    command("launch", "--yes")
    assert "Completed" in command("status", "--json")
    assert command("logs").count("trained in") == 2
    job = json.loads(command("list", "--json"))["jobs"][0]["job"]
    command("follow")
    command("download", "--extract")
    assert (tmp_path / "smdp-results" / job / "model" / "model.bin").read_bytes() == b"weights"
    assert "has ended already" in command("stop", job)


@on_each_system
@pytest.mark.runs
def test_a_stopped_job_resumes(cloud: LocalCloud, tmp_path: Path, system: str) -> None:
    write_job(tmp_path, CHECKPOINT, COUNTS)
    environment = {**os.environ, "COLUMNS": "100"}
    s3 = boto3.client("s3")

    def command(*arguments: str, code: ExitCode = ExitCode.OK) -> str:
        ran = run(system, tmp_path, *arguments, environment=environment)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout

    command("launch", "--yes", "--detach")
    job = json.loads(command("list", "--json"))["jobs"][0]["job"]
    prefix = f"checkpoints/{job}"
    wait_for(lambda: s3.list_objects_v2(Bucket="bucket", Prefix=prefix).get("KeyCount"), "the checkpoint")
    command("stop")
    command("follow", "--quiet", code=ExitCode.JOB_STOPPED)
    command("resume", "--yes")
    assert "found ['step-0']" in command("logs")


@on_each_system
@pytest.mark.runs
@pytest.mark.parametrize(("answer", "code"), [("d", ExitCode.INTERRUPTED), ("s", ExitCode.JOB_STOPPED)])
def test_an_interrupt_asks_what_to_do(
    cloud: LocalCloud, tmp_path: Path, system: str, answer: str, code: ExitCode
) -> None:
    write_job(tmp_path, script=WAITS)
    (program, *arguments), environment = process_of(system, {**os.environ, "COLUMNS": "100", "TERM": "xterm"})
    ran = pexpect.spawn(
        program, [*arguments, "launch", "--yes"], cwd=tmp_path, env=environment, encoding="utf-8", timeout=120
    )
    for reply in ("c", answer):  # the second question is asked as the first one was
        ran.expect_exact("| waiting")
        ran.sendintr()
        ran.expect_exact("[c]ontinue: ")
        ran.sendline(reply)
    ran.expect(pexpect.EOF)
    ran.close()
    assert ran.exitstatus == code
    succeeded(run(system, tmp_path, "stop", environment={**os.environ}))


@on_each_system
@pytest.mark.runs
def test_a_second_interrupt_at_the_question_stops_the_job(cloud: LocalCloud, tmp_path: Path, system: str) -> None:
    write_job(tmp_path, script=WAITS)
    (program, *arguments), environment = process_of(system, {**os.environ, "COLUMNS": "100", "TERM": "xterm"})
    ran = pexpect.spawn(
        program, [*arguments, "launch", "--yes"], cwd=tmp_path, env=environment, encoding="utf-8", timeout=120
    )
    ran.expect_exact("| waiting")
    ran.sendintr()
    ran.expect_exact("[c]ontinue: ")
    ran.sendintr()
    ran.expect(pexpect.EOF)
    ran.close()
    assert ran.exitstatus == ExitCode.JOB_STOPPED


@on_each_system
@pytest.mark.runs
def test_scale_without_the_engine_names_linux(job_folder: Path, system: str) -> None:
    code = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "smdp_engine" else find(name, *more)
sys.argv[:] = ["smdp-launch", "scale", "--step-time", "0.1", "--parameters", "1M", "--batch", "8"]
import smdp_launch.cli
smdp_launch.cli.main()
"""
    ran = run(system, job_folder, "-c", code)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "the engine is not installed: the cost model, a part of the engine, needs Linux: " in ran.stderr
