"""follow, status, logs, list and stop find a job by its name, locally and on AWS."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner

from smdp_launch import Ended, JobEvent, ServiceProblem, StatusChanged, WaitTimedOut, attach
from smdp_launch.cli.main import smdp_launch as command_line
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER, state_folder
from smdp_launch.localcloud.client.connect import Endpoint, private
from smdp_launch.localcloud.client.variables import STATE
from tests.conftest import LAUNCHER, Command, clean_environment, command_in, write_job
from tests.support.jobs.service import await_end, name_of, service, service_cloud
from tests.support.json_documents import the_document
from tests.support.services.cloud import kill
from tests.support.terminal import STAYS, last_lines
from tests.support.waiting import wait_for

__all__ = ["service", "service_cloud"]

HERE = ["launch", "--local", "--hosts", "2", "--workers-per-host", "1"]
SPEAKS = """\
import os
from smdp_engine import progress
for step in range(1, 4):
    print("step", step, "of rank", os.environ["RANK"], flush=True)
if os.environ["RANK"] == "0":
    progress.step(3, 3, loss=0.5)
"""
#: Rank 0 prints only after the file ``go`` exists.
SPEAKS_WHEN_ASKED = f"""\
import os, time
while os.environ["RANK"] == "0" and not os.path.exists(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "go")):
    time.sleep(0.02)
{SPEAKS}"""
WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"
FAILS = """\
import os, time
if os.environ["RANK"] == "1":
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("no such luck " + 2000 * "x") from error
time.sleep(60)
"""


@dataclass(frozen=True)
class Finished:
    """A job that was launched from ``folder``, detached, and followed to its end.

    Args:
        run: the command line there.
        early: what ``status --json`` said while it ran.
        followed: what ``follow`` showed.
    """

    folder: Path
    run: Command
    job: str
    launched: datetime
    early: subprocess.CompletedProcess[str]
    followed: subprocess.CompletedProcess[str]


def let_go(cloud: Endpoint, job: str) -> None:
    """Create the file ``go`` in the output folder of the first host, for which the script waits."""
    output = cloud.state_dir / "jobs" / job / "hosts" / "algo-1" / "ml" / "output" / "data"
    wait_for(output.is_dir, f"the first host of {job}")
    (output / "go").touch()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("finished")
    write_job(folder, script=SPEAKS_WHEN_ASKED)
    run, now = command_in(folder), datetime.now(timezone.utc)
    with private(state_folder(folder) / "local") as endpoint:
        ran = run(*HERE, "--detach")
        assert ran.returncode == ExitCode.OK, ran.stderr
        early = run("status", "--json")
        let_go(endpoint, name_of(folder))
        yield Finished(folder, run, name_of(folder), now, early, run("follow"))


@pytest.fixture(scope="module")
def cloud_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    state = tmp_path_factory.mktemp("local") / "state"
    with private(state):  # otherwise each command starts one
        yield state


@pytest.fixture
def launched(
    job_folder: Path, smdp_launch: Command, cloud_of_all: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], str]]:
    """Launches a script on two hosts, detached, and returns the job's name. Stops the job after the test."""
    monkeypatch.setenv(STATE, str(cloud_of_all))

    def launch(script: str) -> str:
        write_job(job_folder, script=script)
        ran = smdp_launch(*HERE, "--detach")
        assert ran.returncode == ExitCode.OK, ran.stderr
        return name_of(job_folder)

    yield launch
    smdp_launch("stop")
    smdp_launch("follow", "--quiet")


def test_detached_job_is_followed_to_its_end(finished: Finished) -> None:
    ran = finished.followed
    assert ran.returncode == ExitCode.OK, ran.stderr
    for host, rank in (("algo-1", 0), ("algo-2", 1)):
        lines = [line.partition("| ")[2] for line in ran.stdout.splitlines() if line.startswith(f"{host}:{rank} ")]
        assert lines == [f"step {step} of rank {rank}" for step in (1, 2, 3)]
    assert "step 3/3  loss 0.5" in ran.stdout.splitlines()
    statuses = re.findall(r"^ *\d+\.\d s  (\w+)", ran.stdout, re.MULTILINE)
    assert statuses == ["Pending", "Downloading", "Training", "Uploading", "Completed"]
    assert re.search(r"Training: .* \(Downloading took \d+\.\d s\)", ran.stdout)
    assert f"{finished.job} completed" in ran.stdout


def test_quiet_follow_shows_only_status_and_progress(finished: Finished) -> None:
    ran = finished.run("follow", "--quiet")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "algo-" not in ran.stdout
    assert "step 3/3  loss 0.5" in ran.stdout.splitlines()


@pytest.mark.runs
def test_follow_timeout_leaves_the_job_running(launched: Callable[[str], str], smdp_launch: Command) -> None:
    job = launched(WAITS)
    wait_for(lambda: smdp_launch("logs", job).stdout.count("waiting") == 2, "the script on both hosts")
    ran = smdp_launch("follow", "--timeout", "1")
    assert ran.returncode == ExitCode.WAIT_TIMED_OUT
    assert ran.stderr == (f"next: smdp-launch follow\nsmdp-launch: {job} has not ended within 1 s; it continues\n")
    assert smdp_launch("status", job).stdout.startswith(f"{job}  Training\n")


def test_follower_of_stopped_job_exits_with_its_code(
    launched: Callable[[str], str], smdp_launch: Command, cloud_of_all: Path
) -> None:
    job = launched(STAYS)
    wait_for(lambda: smdp_launch("logs", job).stdout.count("stays") == 2, "the script on both hosts")
    ran = smdp_launch("stop", job)
    for output in cloud_of_all.glob(f"jobs/{job}/hosts/*/ml/output"):
        (output / "leave").touch()
    assert (ran.returncode, ran.stderr) == (ExitCode.OK, "next: smdp-launch follow\n")
    assert ran.stdout.startswith(f"{job}  Stopping: ")
    followed = smdp_launch("follow")
    assert followed.returncode == ExitCode.JOB_STOPPED
    again = smdp_launch("stop")
    assert (again.returncode, again.stdout) == (ExitCode.OK, f"{job}  Stopped: the job has ended already\n")
    assert smdp_launch("list").stdout.splitlines()[1].startswith(f"{job}  Stopped  local ")


def test_status_shows_whole_reason_and_follow_shows_whole_traceback(
    launched: Callable[[str], str], smdp_launch: Command
) -> None:
    launched(FAILS)
    followed = smdp_launch("follow", "--quiet")
    assert followed.returncode == ExitCode.JOB_FAILED
    end = followed.stdout[followed.stdout.index("reason") :]
    assert "rank 1  on algo-2:\n" in end
    assert "KeyError: 'first'" in end
    assert "The above exception was the direct cause" in end
    assert f"ValueError: no such luck {2000 * 'x'}" in end
    ran = smdp_launch("status")
    assert ran.returncode == ExitCode.OK
    assert re.search(r"^reason +AlgorithmError: ValueError: no such luck", ran.stdout, re.MULTILINE)
    assert ran.stderr == "next: smdp-launch logs\n"


def test_json_outputs_match_their_schemas(finished: Finished) -> None:
    job, run = finished.job, finished.run
    assert the_document(finished.early, "status")["outcome"] is None
    status = the_document(run("status", "--json"), "status")
    assert (status["job"], status["where"], status["hosts"]) == (job, "local", 2)
    assert status["outcome"]["exit_code"] == 0
    assert the_document(run("stop", "--json"), "stop")["training_job_status"] == "Completed"
    (listed,) = the_document(run("list", "--json"), "list")["jobs"]
    assert (listed["job"], listed["training_job_status"], listed["hosts"]) == (job, "Completed", 2)
    assert listed["billable_seconds"] == status["outcome"]["billable_seconds"]
    logs = the_document(run("logs", "--json", "--rank", "1"), "logs")
    assert [one["text"] for one in logs["lines"]] == [f"step {step} of rank 1" for step in (1, 2, 3)]


def test_options_select_lines(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.folder)

    def texts(*arguments: str) -> list[str]:
        ran = CliRunner().invoke(command_line, ["logs", *arguments], standalone_mode=False)
        assert ran.exception is None, ran.output
        assert ran.stderr == "next: smdp-launch status\n"
        return [line.partition(" | ")[2] for line in ran.stdout.splitlines()]

    every = texts()
    assert len(every) > 6
    assert sum('{"smdp_event":' in one for one in every) >= 3
    assert texts("--grep", "^step [12] of") == [one for one in every if re.match("step [12] of", one)]
    assert texts("--rank", "0", "--grep", "of rank") == [f"step {step} of rank 0" for step in (1, 2, 3)]
    assert texts("--host", "algo-2", "--grep", "of rank", "--tail", "1") == ["step 3 of rank 1"]
    assert texts("--tail", "0") == []
    assert texts("--since", "1h") == every
    assert texts("--since", "2099-01-01T00:00") == []
    shown = finished.run("logs", "--tail", "1", "--utc").stdout
    assert abs(datetime.fromisoformat(shown[:23] + "+00:00") - finished.launched).total_seconds() < 120
    environment = clean_environment(TZ="Asia/Kolkata")
    for option in ("--local-time", "--local"):  # the former name
        assert "+0530 algo-" in finished.run("logs", "--tail", "1", option, env=environment).stdout


def test_logs_without_events_have_the_script_s_lines_only(finished: Finished) -> None:
    everything, lines = (finished.run("logs", *more).stdout for more in ((), ("--no-events",)))
    assert '{"smdp_event"' in everything
    assert '{"smdp_event"' not in lines
    assert lines.count("of rank 1") == everything.count("of rank 1") > 0


def test_stop_accepts_yes(finished: Finished) -> None:
    assert finished.run("stop", "--yes").returncode == ExitCode.OK


def test_logs_of_a_host_that_the_job_does_not_have_are_refused(finished: Finished) -> None:
    ran = finished.run("logs", "--host", "algo-9")
    assert (ran.returncode, ran.stdout) == (ExitCode.USAGE, "")
    assert ran.stderr.endswith(f"Error: {finished.job} has no host algo-9: its hosts are algo-1 to algo-2\n")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_logs_of_a_rank_without_lines_give_a_note(finished: Finished, form: list[str]) -> None:
    ran = finished.run("logs", "--rank", "9", *form)
    assert ran.returncode == ExitCode.OK
    assert ran.stderr.startswith("note: no line of rank 9 was found; the job has the ranks 0 to 1\n")
    assert "note: " not in finished.run("logs", "--rank", "1", *form).stderr
    other = finished.run("logs", "--rank", "1", "--grep", "no line has this", *form)
    assert other.stderr.startswith("note: no line of rank 1 matches the other options\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["logs", "--since", "yesterday"], "is no time"),
        (["logs", "--grep", "("], "is no regular expression"),
        (["follow", "--timeout", "-1"], "--timeout"),
        (["list", "--limit", "0"], "--limit"),
    ],
)
def test_invalid_option_is_a_usage_error(smdp_launch: Command, arguments: list[str], message: str) -> None:
    ran = smdp_launch(*arguments)
    assert ran.returncode == ExitCode.USAGE
    assert message in ran.stderr


@pytest.mark.runs
def test_job_on_aws_is_found_by_name_from_any_folder(
    smdp_launch: Command, job_folder: Path, tmp_path: Path, service: dict[str, str]
) -> None:
    output = "import os\nopen(os.path.join(os.environ['SM_OUTPUT_DATA_DIR'], 'scores'), 'w').write('1')\n"
    write_job(job_folder, script=f"{SPEAKS}\n{output}")
    ran = smdp_launch("launch", "--yes", "--detach", env=service)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (ExitCode.OK, "next: smdp-launch follow")
    job = name_of(job_folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
        return smdp_launch(*arguments, "--region", "us-east-1", env=service, cwd=elsewhere)

    assert asked("follow", job).returncode == ExitCode.OK
    assert asked("status", job).stdout.startswith(f"{job}  completed\nwhere    us-east-1, 2 hosts")
    assert "of rank 1" in asked("logs", job, "--tail", "40").stdout
    assert asked("stop", job).returncode == ExitCode.OK
    assert asked("list").stdout.splitlines()[1].startswith(f"{job}  Completed  us-east-1 ")
    # The service applies the filters, so that one older job is found behind any number of others.
    assert (
        asked("list", "--status", "completed", "--since", "1h", "--limit", "1").stdout.splitlines()[1].startswith(job)
    )
    for excluded in (["--status", "Failed"], ["--since", "2099-01-01"]):
        assert asked("list", *excluded).stdout == "no job in us-east-1 matches the filters\n"
    assert last_lines(asked("logs", job)).endswith(f"next: smdp-launch status {job} --region us-east-1\n")
    assert not (elsewhere / STATE_FOLDER).exists()
    assert smdp_launch("list", env=service).stdout.splitlines()[1].startswith(f"{job}  Completed  us-east-1 ")


@pytest.mark.parametrize("verb", ["follow", "status", "logs", "stop"])
def test_unknown_job_is_a_service_problem(smdp_launch: Command, service: dict[str, str], verb: str) -> None:
    ran = smdp_launch(verb, "unknown", "--region", "us-east-1", env=service)
    assert ran.returncode == ExitCode.SERVICE
    advice = "check the name, the region and AWS_PROFILE"
    assert ran.stderr.endswith(f"ValidationException: Requested resource not found; {advice}\n")


def test_job_of_unreachable_service_is_listed_as_unknown(
    smdp_launch: Command, job_folder: Path, service_cloud: Endpoint, service: dict[str, str]
) -> None:
    write_job(job_folder, script=SPEAKS)
    assert smdp_launch("launch", "--yes", "--detach", env=service).returncode == ExitCode.OK
    environment = clean_environment(HOME=str(job_folder), AWS_EC2_METADATA_DISABLED="true")
    ran = smdp_launch("list", env=environment)
    assert ran.returncode == ExitCode.OK
    assert ran.stdout.splitlines()[1].startswith(f"{name_of(job_folder)}  Unknown  us-east-1 ")
    assert "unknown: no AWS credentials were found" in ran.stderr
    await_end(service_cloud, name_of(job_folder))


def following(folder: Path) -> subprocess.Popen[str]:
    """Follow the last job of ``folder`` in a process without a terminal."""
    return subprocess.Popen(
        [LAUNCHER, "follow"],
        cwd=folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.runs
def test_ctrl_c_without_terminal_detaches_follower(
    launched: Callable[[str], str], job_folder: Path, smdp_launch: Command
) -> None:
    launched(WAITS)
    with following(job_folder) as running:
        assert running.stdout is not None
        assert any("waiting" in line for line in running.stdout)
        running.terminate()
        assert "which continues to run" in running.stdout.read()
        assert running.wait(60) == ExitCode.INTERRUPTED
    assert "InProgress" in smdp_launch("list").stdout


@pytest.mark.runs
def test_follower_survives_death_of_local_cloud(
    launched: Callable[[str], str], job_folder: Path, cloud_of_all: Path
) -> None:
    """The follower starts another local cloud, in which the job continues. No line is lost or repeated."""
    launched("import time\nfor number in range(60):\n    print('line', number, flush=True)\n    time.sleep(0.1)\n")
    with following(job_folder) as running:
        assert running.stdout is not None
        shown = []
        for line in running.stdout:
            shown.append(line)
            if line.endswith("| line 5\n") and line.startswith("algo-1:0"):
                record = json.loads((cloud_of_all / "server.json").read_text())
                kill(int(record["pid"]))
        assert running.wait(60) == ExitCode.OK, shown
    for rank in (0, 1):
        # On a busy machine a line may be late and marked.
        lines = [one.rpartition("| ")[2] for one in shown if re.match(rf"algo-\d:{rank} ", one)]
        assert lines == [f"line {number}\n" for number in range(60)]


@pytest.mark.runs
def test_python_job_has_the_same_methods(
    launched: Callable[[str], str], job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job_folder)
    job = attach(launched(WAITS))
    wait_for(lambda: [line.text for line in job.logs(rank=1)] == ["waiting"], "the first line")
    assert job.status() == "Training"
    with pytest.raises(WaitTimedOut):
        job.wait(timeout=0.5)
    assert job.stop() == "Stopping"
    seen = list(job.follow(timeout=60))
    assert isinstance(seen[-1], Ended)
    assert seen[-1].outcome.exit_code is ExitCode.JOB_STOPPED
    assert [one.status for one in seen if isinstance(one, StatusChanged)][-1] == "Stopped"
    assert {one.name for one in seen if isinstance(one, JobEvent)} >= {"workers_started"}
    found = job.describe()
    assert found.outcome == job.outcome == seen[-1].outcome
    assert [step.status for step in found.steps][:3] == ["Pending", "Downloading", "Training"]
    assert sum(step.seconds for step in found.steps) < 60
    assert job.logs(grep="nothing of this kind") == []


def test_stop_of_unknown_job_is_a_service_problem(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.folder)
    found = attach()
    found.name = "unknown"
    with pytest.raises(ServiceProblem, match="not found"):
        found.stop()


def test_follower_reports_the_end_once(finished: Finished) -> None:
    assert finished.run("follow", "--quiet").returncode == ExitCode.OK
    assert finished.run("status").returncode == ExitCode.OK
    lines = [json.loads(one) for one in (finished.folder / STATE_FOLDER / "history.jsonl").read_text().splitlines()]
    assert [set(one) & {"where", "ended"} for one in lines] == [{"where"}, {"ended"}]


def test_local_run_is_shown_without_bill_and_instances(finished: Finished) -> None:
    status = finished.run("status").stdout
    assert "where    this machine, 2 simulated hosts x 1 worker\n" in status
    assert re.search(r"^runtime  \S.* x 2 hosts, not billed$", status, re.MULTILINE)
    listed = finished.run("list").stdout
    assert "not billed" in listed
    for view in (status, listed, finished.followed.stdout):
        assert "ml.p4d" not in view
        assert not re.search(r"(?<!not )billed", view)
