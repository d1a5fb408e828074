"""The trackers' own clients get the numbers of a script, and give them back.

`make test-clients` makes their environment, `.venv-trackers`. MLflow writes to a file and to a server on loopback,
Weights & Biases is offline.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.run_metrics.openmetrics import openmetrics
from smdp_launch.run_metrics.run import PHASES, RunMetrics
from tests.conftest import ROOT
from tests.support.waiting import wait_for

PYTHON = Path(os.environ.get("SMDP_TEST_TRACKERS_PYTHON", ROOT / ".venv-trackers" / "bin" / "python"))

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not PYTHON.exists(), reason="needs the trackers' clients: make .venv-trackers/.ready"),
]

SCRIPT = """\
from smdp_engine import progress
for step in range(1, 51):
    progress.step(step, 50, loss=1.0 / step if step != 3 else float("nan"))
progress.emit("result", accuracy=0.75)
"""
HYPERPARAMETERS = {"lr": 0.1, "name": "small", "long": "x" * 700}

READ_BOARDS = """\
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
boards = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
boards.Reload()
print(json.dumps({tag: [[one.step, one.value] for one in boards.Scalars(tag)] for tag in boards.Tags()["scalars"]}))
"""
READ_MLFLOW = """\
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("digits")
runs = client.search_runs([experiment.experiment_id])
print(json.dumps([
    {"name": run.info.run_name, "status": run.info.status, "params": run.data.params, "metrics": run.data.metrics,
     "loss": [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, "loss")]}
    for run in runs
]))
"""
READ_WANDB = """\
import json, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2

def records(data):
    # The form of LevelDB's log: blocks of 32 KiB, the first one after a head of 7 bytes.
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""

found = {"history": [], "config": {}, "exit": None}
for data in records(Path(sys.argv[1]).read_bytes()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    if record.HasField("run"):
        found["name"], found["project"] = record.run.display_name, record.run.project
        found["config"].update({one.key: json.loads(one.value_json) for one in record.run.config.update})
    if record.HasField("history"):
        items = record.history.item
        found["history"].append({one.key or one.nested_key[0]: json.loads(one.value_json) for one in items})
    if record.HasField("exit"):
        found["exit"] = record.exit.exit_code
print(json.dumps(found))
"""
READ_OPENMETRICS = """\
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = text_string_to_metric_families(open(sys.argv[1], encoding="utf-8").read())
print(json.dumps({family.name: [[one.labels, one.value] for one in family.samples] for family in families}))
"""


def engine() -> str:
    """The folder of the engine's package, which the trackers' environment does not have."""
    spec = importlib.util.find_spec("smdp_engine")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parents[1])


def train(folder: Path, script: str = SCRIPT, exit_code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    packages = folder / "packages"
    if not packages.exists():
        packages.mkdir()
        (packages / "smdp_engine").symlink_to(Path(engine()) / "smdp_engine")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(packages),
        "TRAINING_JOB_NAME": "digits-1",
        "SM_HPS": json.dumps(HYPERPARAMETERS),
        "SMDP_TRACKING_EXIT_S": "200",
        **variables,
    }
    ran = subprocess.run(
        [PYTHON, "train.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=290, check=False
    )
    assert ran.returncode == exit_code, ran.stderr
    return ran


def read(program: str, *arguments: str | Path) -> Any:
    ran = subprocess.run([PYTHON, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_tensorboard_reads_the_event_files(tmp_path: Path) -> None:
    ran = train(tmp_path, SMDP_TRACKING="tensorboard", SMDP_TRACKING_TENSORBOARD=str(tmp_path / "boards"))
    assert f"smdp: tracking: tensorboard: event files in {tmp_path / 'boards'}" in ran.stderr
    found = read(READ_BOARDS, tmp_path / "boards")
    assert [step for step, _ in found["loss"]] == list(range(1, 51))
    assert found["loss"][1] == [2, 0.5]
    assert found["loss"][2][1] != found["loss"][2][1]
    assert found["result/accuracy"] == [[50, 0.75]]


def test_tensorboardx_writes_the_event_files_where_tensorboard_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "packages" / "tensorboard").mkdir(parents=True)
    (tmp_path / "packages" / "tensorboard" / "__init__.py").write_text("raise ImportError('not installed')")
    (tmp_path / "packages" / "smdp_engine").symlink_to(Path(engine()) / "smdp_engine")
    train(tmp_path, SMDP_TRACKING="tensorboard", SMDP_TRACKING_TENSORBOARD=str(tmp_path / "boards"))
    assert read(READ_BOARDS, tmp_path / "boards")["loss"][1] == [2, 0.5]


def check_mlflow(store: str) -> None:
    (run,) = read(READ_MLFLOW, store)
    assert (run["name"], run["status"]) == ("digits-1", "FINISHED")
    assert run["params"] == {"lr": "0.1", "name": "small", "long": "x" * 500}
    assert run["metrics"] == {"loss": 0.02, "result/accuracy": 0.75}
    assert [step for step, _ in run["loss"]] == list(range(1, 51))


def test_mlflow_has_one_run_with_parameters_and_metrics(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    train(tmp_path, SMDP_TRACKING="mlflow", SMDP_TRACKING_MLFLOW_URI=store, SMDP_TRACKING_MLFLOW_EXPERIMENT="digits")
    check_mlflow(store)


#: Names that MLflow refuses, and a step that its store cannot hold.
ODD_NAMES = """\
from smdp_engine import progress
names = ["val//acc", "/top", "..", "../up", "..x", "a/./b", "a/../b", "end/", "a:b", "", "x" * 300]
for step in (1, 2, 2**63, 3):
    progress.step(step, 4, loss=1.0 / step, **{name: 0.5 for name in names})
raise SystemExit(3)
"""


def check_odd_names(folder: Path, store: str) -> None:
    ran = train(
        folder,
        ODD_NAMES,
        exit_code=3,
        SMDP_TRACKING="mlflow",
        SMDP_TRACKING_MLFLOW_URI=store,
        SMDP_TRACKING_MLFLOW_EXPERIMENT="digits",
        SM_HPS=json.dumps({"lr": 0.1, "model//name": "small", "": "empty"}),
    )
    (run,) = read(READ_MLFLOW, store)
    assert run["status"] == "FAILED"
    assert run["params"] == {"lr": "0.1", "model/name": "small", "_": "empty"}
    names = {"val/acc", "top", "__", "__/up", "__x", "a/_/b", "a/__/b", "end", "a_b", "_", "x" * 250}
    assert run["metrics"] == {"loss": 1 / 3, **dict.fromkeys(names, 0.5)}
    assert [step for step, _ in run["loss"]] == [1, 2, 3]
    said = [one for one in ran.stderr.splitlines() if one.startswith("smdp: tracking: ")]
    assert said[0] == (
        "smdp: tracking: no tracker stores a step of more than 64 bits: reports with such a step are not sent"
    )
    assert len(said) == 2
    assert "mlflow: run digits-1" in said[1]


def test_names_that_mlflow_refuses_are_changed(tmp_path: Path) -> None:
    check_odd_names(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[str]:
    address = tmp_path / "address"
    program = (
        "import socket, sys\nfrom pathlib import Path\nfrom werkzeug.serving import make_server\n"
        "from mlflow.server import app, handlers\n"
        f"store = 'sqlite:///{tmp_path}/server.db'\n"
        f"handlers.initialize_backend_stores(store, default_artifact_root={str(tmp_path)!r})\n"
        "server = make_server('127.0.0.1', 0, app, threaded=True)\n"
        f"Path({str(address)!r}).write_text(str(server.port))\nserver.serve_forever()\n"
    )
    variables = {"_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{tmp_path}/server.db", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen([PYTHON, "-c", program], stdout=log, stderr=log, env={**os.environ, **variables})
    try:

        def port() -> str | None:
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            return address.read_text() if address.exists() else None

        yield f"http://127.0.0.1:{wait_for(port, 'the MLflow server', 200)}"
    finally:
        server.kill()
        server.wait()


def test_mlflow_server_gets_the_run_and_continues_it_after_a_restart(tmp_path: Path, mlflow_server: str) -> None:
    settings = {"SMDP_TRACKING_MLFLOW_URI": mlflow_server, "SMDP_TRACKING_MLFLOW_EXPERIMENT": "digits"}
    first = SCRIPT.replace("range(1, 51)", "range(1, 11)").replace("progress.emit", "# ")
    train(tmp_path, f"{first}import os, signal\n", SMDP_TRACKING="mlflow", **settings)
    train(tmp_path, SCRIPT.replace("range(1, 51)", "range(11, 51)"), SMDP_TRACKING="mlflow", **settings)
    (run,) = read(READ_MLFLOW, mlflow_server)
    assert run["name"] == "digits-1"
    assert [step for step, _ in run["loss"]] == list(range(1, 51))


def test_mlflow_server_gets_names_that_it_refuses_changed(tmp_path: Path, mlflow_server: str) -> None:
    check_odd_names(tmp_path, mlflow_server)


def test_changed_parameter_of_a_restarted_job_costs_no_other_parameter(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    settings = {"SMDP_TRACKING_MLFLOW_URI": store, "SMDP_TRACKING_MLFLOW_EXPERIMENT": "digits"}
    train(tmp_path, SMDP_TRACKING="mlflow", SM_HPS=json.dumps({"lr": 0.1}), **settings)
    ran = train(tmp_path, SMDP_TRACKING="mlflow", SM_HPS=json.dumps({"lr": 0.2, "decay": 0.3}), **settings)
    (run,) = read(READ_MLFLOW, store)
    assert run["params"] == {"lr": "0.1", "decay": "0.3"}
    assert "smdp: tracking: mlflow: 1 parameters were refused, and are not in the run: lr. The reason: " in ran.stderr


def test_wandb_writes_an_offline_run(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.mkdir()
    ran = train(
        tmp_path,
        SMDP_TRACKING="wandb",
        SMDP_TRACKING_WANDB_PROJECT="digits",
        WANDB_MODE="offline",
        SM_OUTPUT_DATA_DIR=str(output),
    )
    assert "smdp: tracking: wandb: run digits-1 of project digits, offline in " in ran.stderr
    (path,) = output.glob("wandb/offline-run-*/run-*.wandb")
    found = read(READ_WANDB, path)
    assert (found["name"], found["project"], found["exit"]) == ("digits-1", "digits", 0)
    assert {"lr": "0.1", "name": "small"}.items() <= found["config"].items()
    assert [one["step"] for one in found["history"]] == [*range(1, 51), 50]
    assert found["history"][1]["loss"] == 0.5


def test_prometheus_reads_the_openmetrics_text(tmp_path: Path) -> None:
    run = RunMetrics()
    timing = {"window": 2.0, **{f"{phase}_s": 0.2 for phase in PHASES}, "steps": 4, "samples": 128}
    run.add("timing", timing, "algo-1", 0, 100.0)
    run.add("timing", timing, "algo-2", 1, 101.0)
    run.add("resources", {"window": 5.0, "cores": 8, "cpu_s": 3.5, "channel_a.b-c_bytes": 9}, "algo-1", None, 102.0)
    run.add("step", {"step": 7, "steps": 9, 'a "b"\\c\nd': 1e-30}, "algo-1", 0, 103.0)
    path = tmp_path / "text"
    path.write_text(openmetrics(run, "job-1"), encoding="utf-8")
    families = read(READ_OPENMETRICS, path)
    assert families["smdp_phase_seconds"][0] == [
        {"job": "job-1", "phase": "input", "rank": "0", "host": "algo-1"},
        0.2,
    ]
    assert families["smdp_metric"] == [[{"job": "job-1", "metric": 'a "b"\\c\nd'}, 1e-30]]
    assert families["smdp_channel_read_bytes"][0][0]["channel"] == "a.b-c"
