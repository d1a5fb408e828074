"""A tracker that is missing, refuses, hangs or dies costs the training nothing but one line."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from launching import tracked

#: A client of Weights & Biases that writes what it gets to a file. Each case changes one part of it.
CLIENT = """\
import json, os, sys, time

def Settings(**values):
    return values

def setup():
    print("the client's own output on standard output, with the key", os.environ.get("WANDB_API_KEY"))
    sys.stderr.write("and on standard error\\n")

class Run:
    name = project = url = "x"

    def __init__(self, options):
        self.file = open(os.environ["RECORD"], "a")
        self.write("init", {key: value for key, value in options.items() if key != "settings"})

    def write(self, what, value):
        self.file.write(json.dumps([what, value]) + "\\n")
        self.file.flush()

    def define_metric(self, *_, **__):
        pass

    def log(self, values):
        LOG
        self.write("log", values)

    @property
    def summary(self):
        run = self
        class Summary:
            def update(self, values):
                run.write("summary", values)
        return Summary()

    def finish(self, exit_code):
        FINISH
        self.write("finish", exit_code)

def init(**options):
    INIT
    return Run(options)
"""


def client(folder: Path, **parts: str) -> Path:
    """A folder with the client as the package ``wandb``."""
    text = CLIENT
    for name in ("LOG", "FINISH", "INIT"):
        text = text.replace(name, parts.get(name.lower(), "pass"))
    (folder / "clients").mkdir()
    (folder / "clients" / "wandb.py").write_text(text)
    return folder / "clients"


def run(
    folder: Path,
    script: str = tracked.SCRIPT,
    variables: Optional[Dict[str, str]] = None,
    **parts: str,
) -> "subprocess.CompletedProcess[str]":
    packages = [client(folder, **parts)]
    settings = {
        "SMDP_TRACKING": "wandb",
        "RECORD": str(folder / "record"),
        "SMDP_TRACKING_EXIT_S": "60",
        **(variables or {}),
    }
    return tracked.run(folder, script, packages, **settings)


def record(folder: Path) -> List[Any]:
    path = folder / "record"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def events(ran: "subprocess.CompletedProcess[str]") -> List[Any]:
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_client_gets_every_number_with_its_step(tmp_path: Path) -> None:
    hyperparameters = json.dumps({"lr": 0.1, "name": "small"})
    ran = run(
        tmp_path,
        variables={"TRAINING_JOB_NAME": "job-1", "SM_HPS": hyperparameters, "SMDP_TRACKING_WANDB_PROJECT": "digits"},
    )
    assert ran.returncode == 0, ran.stderr
    begin, *middle, end = record(tmp_path)
    assert begin == [
        "init",
        {
            "project": "digits",
            "entity": None,
            "config": {"lr": "0.1", "name": "small"},
            "name": "job-1",
            "id": "job-1",
            "resume": "allow",
        },
    ]
    logged = [values for what, values in middle if what == "log"]
    assert [one["step"] for one in logged] == [*range(1, 51), 50, 50]
    assert [one["loss"] for one in logged[:2]] == [1.0, 0.5]
    assert logged[2]["loss"] != logged[2]["loss"]
    assert [one.get("validation/accuracy") for one in logged[50:]] == [0.5, None]
    assert middle[-1] == ["summary", {"result/accuracy": 0.75}]
    assert end == ["finish", 0]
    assert len(events(ran)) == 52


def test_without_the_setting_no_process_is_started(tmp_path: Path) -> None:
    ran = run(tmp_path, variables={"SMDP_TRACKING": ""})
    assert (ran.returncode, ran.stderr, record(tmp_path)) == (0, "", [])


@pytest.mark.parametrize("rank", ["1", "7"])
def test_only_rank_0_reports(tmp_path: Path, rank: str) -> None:
    ran = run(tmp_path, variables={"RANK": rank})
    assert (ran.returncode, ran.stderr, record(tmp_path)) == (0, "", [])


def test_output_of_the_client_and_keys_are_not_in_the_log(tmp_path: Path) -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    address = "https://someone:open-sesame@tracker"
    ran = run(
        tmp_path, variables={"WANDB_API_KEY": key}, init=f"raise OSError(os.environ['WANDB_API_KEY'] + ' {address}')"
    )
    assert ran.returncode == 0
    assert tracked.tracker_lines(ran)[0] == (
        "smdp: tracking: wandb: OSError: *** https://***@tracker; the training continues, and sending is tried again"
    )
    assert key not in ran.stdout + ran.stderr
    assert "standard" not in ran.stdout + ran.stderr
    assert "open-sesame" not in ran.stderr


def test_missing_client_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "wandb.py").write_text("raise ImportError('no such package')")
    ran = tracked.run(tmp_path, packages=[tmp_path / "none"], SMDP_TRACKING="wandb")
    assert ran.returncode == 0
    assert len(events(ran)) == 52
    assert ran.stderr.splitlines() == [
        "smdp: tracking: wandb: wandb is not installed: add wandb to the source folder's requirements.txt; "
        "the training continues without it"
    ]


def test_unknown_tracker_gives_one_line(tmp_path: Path) -> None:
    ran = run(tmp_path, variables={"SMDP_TRACKING": "wandb,neptune"})
    assert "'neptune' in SMDP_TRACKING is no tracker: use tensorboard, mlflow, wandb" in ran.stderr
    assert record(tmp_path)[-1] == ["finish", 0]


def test_hanging_client_is_left_at_the_deadline(tmp_path: Path) -> None:
    ran = run(tmp_path, variables={"SMDP_TRACKING_EXIT_S": "0.2"}, init="time.sleep(3600)")
    assert ran.returncode == 0
    assert len(events(ran)) == 52
    assert tracked.tracker_lines(ran) == ["smdp: tracking: wandb: it did not answer in time; 52 reports were not sent"]


def test_client_that_hangs_at_the_end_is_left_at_the_deadline(tmp_path: Path) -> None:
    # The time of the end is for the hang alone: the numbers are sent before.
    script = f"""{tracked.SCRIPT}
import os, pathlib, time
record, ends = pathlib.Path(os.environ["RECORD"]), time.monotonic() + 120
while not record.exists() or record.read_text().count('["log"') < 52:
    assert time.monotonic() < ends
    time.sleep(0.05)
"""
    ran = run(tmp_path, script, variables={"SMDP_TRACKING_EXIT_S": "3"}, finish="time.sleep(3600)")
    assert ran.returncode == 0
    assert "wandb: it did not end the run in time" in ran.stderr
    assert len([one for one in record(tmp_path) if one[0] == "log"]) == 52


def test_client_that_ends_its_process_gives_one_line(tmp_path: Path) -> None:
    script = (
        "import time\nfrom smdp_engine import progress\n"
        "progress.step(1, 3)\nprogress.step(1, 3, loss=1.0)\n"
        "from smdp_engine.tracking import reports\nreports._reports._process.wait()\n"
        "progress.step(2, 3, loss=1.0)\nprogress.step(3, 3, loss=1.0)\n"
    )
    ran = run(tmp_path, script, init="os._exit(7)")
    assert ran.returncode == 0
    assert len(events(ran)) == 4
    (line,) = tracked.tracker_lines(ran)
    assert line.endswith("no more numbers are sent, the training continues")


def test_temporary_error_is_repeated_without_loss(tmp_path: Path) -> None:
    fails = (
        "if not os.path.exists(os.environ['RECORD'] + '.1'):\n            open(os.environ['RECORD'] + '.1', 'w')\n"
        + ("            raise OSError('down')")
    )
    ran = run(tmp_path, log=fails)
    assert ran.returncode == 0
    steps = [values["step"] for what, values in record(tmp_path) if what == "log"]
    assert steps == [*range(1, 51), 50, 50]
    lines = tracked.tracker_lines(ran)
    assert [one for one in lines if "down" in one] == [
        "smdp: tracking: wandb: OSError: down; the training continues, and sending is tried again"
    ]


def test_report_that_the_tracker_cannot_store_does_not_hold_up_the_others(tmp_path: Path) -> None:
    fails = "if values['step'] in (7, 30): raise OverflowError('too large')"
    ran = run(tmp_path, log=fails)
    assert ran.returncode == 0
    found = record(tmp_path)
    steps = {values["step"] for what, values in found if what == "log"}
    assert steps == {*range(1, 51)} - {7, 30}
    assert [values for what, values in found if what == "log" and "result/accuracy" in values]
    assert "smdp: tracking: wandb: 2 reports were not sent" in tracked.tracker_lines(ran)
    assert found[-1] == ["finish", 0]


def test_run_is_ended_though_the_last_reports_cannot_be_sent(tmp_path: Path) -> None:
    ran = run(tmp_path, f"{tracked.SCRIPT}raise SystemExit(3)\n", log="raise OSError('down')")
    assert ran.returncode == 3
    assert record(tmp_path)[-1] == ["finish", 1]
    assert "smdp: tracking: wandb: 52 reports were not sent" in tracked.tracker_lines(ran)


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "sys.exit()",
        "sys.exit(False)",
        "raise SystemExit",
        "threading.Thread(target=sys.exit, args=(1,)).start()",
        "try:\n    sys.exit(1)\nexcept SystemExit:\n    pass",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.exit(0)",
    ],
)
def test_script_that_exits_with_0_ends_its_run_as_successful(tmp_path: Path, end: str) -> None:
    ran = run(tmp_path, f"import sys, threading\n{tracked.SCRIPT}{end}\n")
    assert ran.returncode == 0, ran.stderr
    assert record(tmp_path)[-1] == ["finish", 0]


@pytest.mark.parametrize(
    "end",
    [
        "raise RuntimeError('no')",
        "raise KeyboardInterrupt",
        "sys.exit(1)",
        "sys.exit(True)",
        "sys.exit('the accuracy is too low')",
        "raise SystemExit(2)",
        "os._exit(4)",
        "os.abort()",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
        "atexit.register(os._exit, 5)",
    ],
)
def test_script_that_fails_ends_its_run_as_failed(tmp_path: Path, end: str) -> None:
    # It returns when the tracking process, which has the script's standard error, has ended.
    ran = run(tmp_path, f"import atexit, os, signal, sys, time\n{tracked.SCRIPT}{end}\n")
    assert ran.returncode != 0
    assert record(tmp_path)[-1] == ["finish", 1]


def test_process_that_the_script_forks_neither_reports_nor_ends_the_run(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom smdp_engine import progress\nprogress.step(1, 2, loss=1.0)\n"
        "if os.fork() == 0:\n    progress.step(9, 9, loss=9.0)\n    sys.exit()\n"
        "os.wait()\nprogress.step(2, 2, loss=0.5)\n"
    )
    run(tmp_path, script)
    found = record(tmp_path)
    assert [values["step"] for what, values in found if what == "log"] == [1, 2]
    assert [what for what, _ in found].count("finish") == 1


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_run_ends_with_the_script_though_a_forked_process_stays(tmp_path: Path, end: str) -> None:
    # The forked process ends after the run.
    script = f"""{tracked.SCRIPT}
import os, pathlib, signal, time
if os.fork() == 0:
    record, ends = pathlib.Path(os.environ["RECORD"]), time.monotonic() + 120
    while time.monotonic() < ends and not (record.exists() and '["finish"' in record.read_text()):
        time.sleep(0.05)
    print("the run has ended" if time.monotonic() < ends else "the run has not ended", flush=True)
    os._exit(0)
{end}
"""
    ran = run(tmp_path, script)
    assert ran.stdout.splitlines()[-1] == "the run has ended"
    assert record(tmp_path)[-1] == ["finish", 1 if end else 0]


def test_signal_handler_that_reports_while_a_report_is_written_does_not_hang(tmp_path: Path) -> None:
    script = """
import os, signal
from smdp_engine import progress
from smdp_engine.tracking import reports
signal.signal(signal.SIGUSR1, lambda *_: progress.step(2, 3, loss=2.0))
start = reports._start
def interrupted():
    os.kill(os.getpid(), signal.SIGUSR1)
    return start()
reports._start = interrupted
progress.step(1, 3, loss=1.0)
progress.step(3, 3, loss=3.0)
"""
    ran = run(tmp_path, script)
    assert ran.returncode == 0, ran.stderr
    assert [values["step"] for what, values in record(tmp_path) if what == "log"] == [1, 3]
    assert "smdp: tracking: 1 reports were dropped" in ran.stderr


def test_tracking_process_that_hangs_is_killed(tmp_path: Path) -> None:
    script = f"""{tracked.SCRIPT}
import os, pathlib, signal, time
record, ends = pathlib.Path(os.environ["RECORD"]), time.monotonic() + 120
while not record.exists() or record.read_text().count('["log"') < 52:
    assert time.monotonic() < ends
    time.sleep(0.05)
from smdp_engine.tracking import reports
os.kill(reports._reports._process.pid, signal.SIGSTOP)
"""
    ran = run(tmp_path, script, variables={"SMDP_TRACKING_EXIT_S": "0.1"})
    assert ran.returncode == 0
    assert re.search(r"smdp: process \d+ did not exit within 5.1 s after its parent: it is killed", ran.stderr)


def test_more_reports_than_fit_are_counted(tmp_path: Path) -> None:
    script = (
        "from smdp_engine import progress\n"
        "for step in range(30_000):\n    progress.step(step + 1, 30_000, loss=1.0, text=100 * 'x')\n"
    )
    ran = run(tmp_path, script, variables={"SMDP_TRACKING_EXIT_S": "1"}, init="time.sleep(3600)")
    assert ran.returncode == 0
    assert len(events(ran)) == 30_000
    assert "reports were not sent" in ran.stderr


def test_offline_run_is_written_to_the_output_of_the_job(tmp_path: Path) -> None:
    run(
        tmp_path, variables={"WANDB_MODE": "offline", "SM_OUTPUT_DATA_DIR": "/the/output", "TRAINING_JOB_NAME": "job-1"}
    )
    options = record(tmp_path)[0][1]
    assert (options["dir"], options["id"]) == ("/the/output", "job-1")
    assert "resume" not in options


def test_files_of_the_script_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('the script's own file')")
    ran = run(tmp_path, variables={"PYTHONSAFEPATH": "1"})
    assert ran.returncode == 0, ran.stderr
    assert record(tmp_path)[-1] == ["finish", 0]
