"""`launch --local` as a person meets it: how jobs end, what is said, and that nothing stays."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import LAUNCHER, ROOT, clean_environment
from tests.endtoend.conftest import Job
from tests.endtoend.leftovers import processes
from tests.support import command
from tests.support.waiting import DEADLINE, wait_for

WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"
REPORTS = """\
import os, sys
from smdp_engine import progress
print("arguments", sys.argv[1:])
for step in range(1, 5):
    progress.step(step, 4, loss=1 / step)
if os.environ["RANK"] == "0":
    progress.emit("result", accuracy=0.5)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w") as file:
        file.write("trained on " + ",".join(os.listdir(os.environ["SM_CHANNEL_TRAIN"])))
"""


def launch(job: Job, *arguments: str, hosts: int = 2, workers: int = 2) -> subprocess.CompletedProcess[str]:
    counts = ("--hosts", str(hosts), "--workers-per-host", str(workers))
    return command.run(job.folder, "launch", "--local", *counts, *arguments)


class Terminal:
    """The command on a terminal of its own, as a person sees it."""

    def __init__(self, job: Job, *arguments: str) -> None:
        pid, self._fd = pty.fork()
        if pid == 0:
            os.chdir(job.folder)
            os.execve(LAUNCHER, [str(LAUNCHER), *arguments], clean_environment(TERM="xterm", COLUMNS="100"))
        self.pid = pid
        self.text = ""

    def wait_for(self, text: str, seconds: float = DEADLINE) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.text!r}"
            self._read()

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def exit_code(self) -> int:
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 1)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the terminal's other end is closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def terminal(job: Job, *arguments: str) -> Iterator[Terminal]:
    made = Terminal(job, *arguments)
    try:
        yield made
    finally:
        made.close()


def job_state(job: Job) -> dict[str, object]:
    (path,) = job.folder.glob(".smdp/local/jobs/*/state.json")
    state: dict[str, object] = json.loads(path.read_text())
    return state


def test_a_job_is_run_shown_and_packed(job: Job) -> None:
    job.write(REPORTS, ("{epochs: 2}", '{epochs: 2, text: "a b", flag: true}'))
    ran = launch(job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert "here: 2 hosts x 2 workers" in ran.stdout
    lines = ran.stdout.splitlines()
    for host, rank in (("algo-1", 0), ("algo-1", 1), ("algo-2", 2), ("algo-2", 3)):
        assert f"{host}:{rank} | arguments ['--epochs', '2', '--flag', 'True', '--text', 'a b']" in lines
    statuses = re.findall(r"^ *\d+\.\d s  (\w+)", ran.stdout, re.MULTILINE)
    assert statuses == ["Pending", "Downloading", "Training", "Uploading", "Completed"]
    assert "step 4/4  loss 0.25" in lines
    assert "result  accuracy 0.5" in lines
    model = next(line.split()[1] for line in lines if line.startswith("model"))
    with tarfile.open(job.folder / model) as tar:
        member = tar.extractfile("model.txt")
        assert member is not None
        assert member.read() == b"trained on part-0"
    history = [json.loads(line) for line in (job.folder / ".smdp" / "history.jsonl").read_text().splitlines()]
    launched, ended = history
    assert (launched["where"], launched["job"].rsplit("-", 2)[0]) == ("local", job.name)
    assert (ended["job"], ended["ended"], ended["exit_code"]) == (launched["job"], "Completed", 0)
    assert ended["billable_seconds"] > 0


@pytest.mark.runs
def test_a_job_without_a_network_gets_its_source_all_the_same(job: Job) -> None:
    job.write(REPORTS, ("region: us-east-1", "region: us-east-1\nnetwork: {isolated: true}"))
    ran = launch(job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "result  accuracy 0.5" in ran.stdout.splitlines()


@pytest.mark.runs
def test_a_job_without_channels_runs_and_says_that_it_has_no_data(job: Job) -> None:
    script = "import os\nprint('data', os.environ.get('SM_CHANNELS'), os.path.exists('/opt/ml/input/data/train'))\n"
    job.write(
        script, ('channels:\n  train: {s3: "s3://bucket/train"}\n', ""), ("local: {channels: {train: data}}\n", "")
    )
    ran = launch(job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "warning[SMDP423]" in ran.stderr
    assert ran.stdout.count("data [] False") == 4


def test_a_script_that_raises_fails_the_job_with_its_own_words(job: Job) -> None:
    job.write(
        "import os, time\nif os.environ['RANK'] == '2':\n    raise ValueError('no such digit')\ntime.sleep(300)\n"
    )
    ran = launch(job)
    assert ran.returncode == ExitCode.JOB_FAILED
    reason = next(line for line in ran.stdout.splitlines() if line.startswith("reason"))
    assert reason == "reason  AlgorithmError: ValueError: no such digit (rank 2 on algo-2, exit code 1)"
    assert job_state(job)["status"] == "Failed"


def test_a_killed_worker_ends_the_job_naming_host_and_rank(job: Job) -> None:
    job.write(WAITS)
    with terminal(job, "launch", "--local", "--hosts", "2", "--workers-per-host", "2") as screen:
        for _ in range(4):
            screen.wait_for("waiting")
            screen.text = screen.text.replace("waiting", "", 1)
        (victim,) = processes(f"TRAINING_JOB_NAME={job.name}", "\0RANK=3\0")
        os.kill(victim, signal.SIGKILL)
        screen.wait_for("failed after")  # the other ranks would wait for five minutes
        assert screen.exit_code() == ExitCode.JOB_FAILED
        assert "rank 3 on algo-2 was killed by SIGKILL" in screen.text


def test_ctrl_c_asks_once_and_stops_the_job(job: Job) -> None:
    job.write(WAITS)
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[s]top it, [d]etach and let it run, [c]ontinue: ")
        screen.type("s\n")
        assert screen.exit_code() == ExitCode.JOB_STOPPED
        assert screen.text.count("[s]top it") == 1
    assert job_state(job)["status"] == "Stopped"


@pytest.mark.runs
def test_ctrl_c_twice_stops_without_an_answer(job: Job) -> None:
    job.write(WAITS)
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[c]ontinue: ")
        screen.type("\x03")
        assert screen.exit_code() == ExitCode.JOB_STOPPED
    assert job_state(job)["status"] == "Stopped"


def test_a_job_that_was_left_goes_on_and_is_found_by_its_name(job: Job) -> None:
    job.write(
        "import os, time\nprint('waiting', flush=True)\n"
        "while not os.path.exists('/opt/ml/output/data/go'):\n    time.sleep(0.05)\n"
        "print('done', flush=True)\n"
    )
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[c]ontinue: ")
        screen.type("d\n")
        screen.wait_for("next: smdp-launch follow")
        assert screen.exit_code() == ExitCode.INTERRUPTED
    with terminal(job, "follow") as screen:
        screen.wait_for("| waiting")
        (tree,) = job.folder.glob(".smdp/local/jobs/*/hosts/algo-1/ml/output/data")
        (tree / "go").write_text("")
        assert screen.exit_code() == ExitCode.OK
        assert "| done" in screen.text


@pytest.mark.runs
def test_a_job_goes_on_when_the_answer_is_to_continue(job: Job) -> None:
    job.write(
        "import os, time\nprint('waiting', flush=True)\n"
        "while not os.path.exists('/opt/ml/output/data/go'):\n    time.sleep(0.05)\n"
    )
    with terminal(job, "launch", "--local", "--hosts", "1", "--workers-per-host", "1") as screen:
        screen.wait_for("waiting")
        screen.type("\x03")
        screen.wait_for("[c]ontinue: ")
        screen.type("c\n")
        time.sleep(0.5)
        (tree,) = job.folder.glob(".smdp/local/jobs/*/hosts/algo-1/ml/output/data")
        (tree / "go").write_text("")
        assert screen.exit_code() == ExitCode.OK


@pytest.mark.runs
def test_ctrl_c_where_nobody_can_be_asked_stops_the_job(job: Job) -> None:
    job.write(WAITS)
    launching = [LAUNCHER, "launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
    with subprocess.Popen(
        launching, cwd=job.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert any("waiting" in line for line in running.stdout)
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        assert running.wait(60) == ExitCode.JOB_STOPPED
    assert job_state(job)["status"] == "Stopped"


@pytest.mark.runs
def test_a_job_outlives_a_client_that_is_killed(job: Job) -> None:
    job.write("import time\nprint('waiting', flush=True)\ntime.sleep(2)\n")
    launching = [LAUNCHER, "launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
    with subprocess.Popen(
        launching, cwd=job.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert any("waiting" in line for line in running.stdout)
        running.kill()
    wait_for(lambda: job_state(job)["status"] == "Completed", "the end of the job")


@pytest.mark.runs
def test_the_maximum_run_time_ends_a_job_with_a_code_of_its_own(job: Job) -> None:
    job.write(WAITS, ("max_run: 600", "max_run: 2"))
    ran = launch(job, hosts=1, workers=1)
    assert ran.returncode == ExitCode.MAX_RUN_TIME
    assert "maximum run time" in ran.stdout


@pytest.mark.runs
def test_two_jobs_run_side_by_side_from_one_folder(job: Job) -> None:
    job.write(REPORTS)
    launching = [LAUNCHER, "launch", "--local", "--hosts", "2", "--workers-per-host", "1"]
    both = [
        subprocess.Popen(
            launching, cwd=job.folder, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for one in both:
        one.communicate(timeout=120)
    assert [one.returncode for one in both] == [0, 0]
    lines = [json.loads(line) for line in (job.folder / ".smdp" / "history.jsonl").read_text().splitlines()]
    assert len({one["job"] for one in lines if "where" in one}) == 2
    assert sorted(one["job"] for one in lines if "ended" in one) == sorted({one["job"] for one in lines})


@pytest.mark.runs
def test_data_from_a_flag_replaces_what_an_earlier_run_uploaded(job: Job) -> None:
    job.write("import os\nprint('channel', sorted(os.listdir(os.environ['SM_CHANNEL_TRAIN'])))\n")
    assert "channel ['part-0']" in launch(job, hosts=1, workers=1).stdout
    other = job.folder / "other"
    (other / "deep").mkdir(parents=True)
    (other / "deep" / "ä b").write_text("x")
    assert "channel ['deep']" in launch(job, "--data", f"train={other}", hosts=1, workers=1).stdout


def test_a_folder_that_cannot_be_written_is_told(job: Job) -> None:
    job.write(REPORTS)
    (job.folder / ".smdp").write_text("in the way")
    ran = launch(job)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ".smdp" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.runs
@pytest.mark.parametrize(
    "setting",
    [
        {"AWS_PROFILE": "nobody"},
        {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        {"AWS_CA_BUNDLE": "/nowhere"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_the_persons_aws_settings_do_not_matter_here(job: Job, setting: dict[str, str]) -> None:
    job.write(REPORTS)
    counts = ("--hosts", "1", "--workers-per-host", "1")
    ran = command.run(job.folder, "launch", "--local", *counts, env=clean_environment(**setting))
    assert ran.returncode == 0, ran.stderr


@pytest.mark.runs
def test_it_needs_no_home(job: Job) -> None:
    job.write(REPORTS)
    ran = subprocess.run(
        [LAUNCHER, "launch", "--local", "--hosts", "1", "--workers-per-host", "1"],
        cwd=job.folder,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert Path(job.folder / ".smdp" / ".gitignore").read_text() == "*\n"


@pytest.mark.runs
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_no_ending_leaves_a_port_or_a_process(tmp_path: Path) -> None:
    inside = f"ip link set lo up && exec {sys.executable} -m tests.endtoend.every_ending {tmp_path}"
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", inside], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["codes"] == [ExitCode.OK, ExitCode.JOB_FAILED, ExitCode.JOB_FAILED, ExitCode.JOB_STOPPED]
    assert told["left"] == []
    assert told["ports"] == told["before"] == []


@pytest.mark.runs
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_while_the_job_is_created_stops_it(job: Job, moment: str) -> None:
    """Sent by the process itself: right before the call, or between its answer and the first look at the job."""
    job.write(WAITS)
    program = f"""
import os, signal, sys
from smdp_launch.cli import following, main
real = following.create
def interrupted(*given):
    if {moment!r} == "before":
        os.kill(os.getpid(), signal.SIGINT)
    real(*given)
    if {moment!r} == "after":
        os.kill(os.getpid(), signal.SIGINT)
following.create = interrupted
sys.argv = ["smdp-launch", "launch", "--local", "--hosts", "1", "--workers-per-host", "1"]
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=job.folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == ExitCode.JOB_STOPPED, ran.stderr
    assert job_state(job)["status"] == "Stopped"


@pytest.mark.runs
def test_a_local_job_that_nobody_reads_is_stopped(job: Job) -> None:
    job.write("import time\nfor _ in range(3000):\n    print('line', flush=True)\n    time.sleep(0.1)\n")
    piped = f"{LAUNCHER} launch --local --hosts 1 --workers-per-host 1 | grep -m 1 'line'"
    ran = subprocess.run(
        ["bash", "-c", f"{piped}; exit ${{PIPESTATUS[0]}}"],
        cwd=job.folder,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert ran.stderr == ""
    wait_for(lambda: job_state(job)["status"] not in {"InProgress", "Stopping"}, "the end of the job")
    assert job_state(job)["status"] == "Stopped"
