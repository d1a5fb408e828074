"""What MLflow refuses, such as a name, costs no other metric and no other parameter."""

import json
import posixpath
import re
import sys
from collections import Counter
from types import ModuleType
from typing import Any, Dict, List, NamedTuple

import pytest

from smdp_engine.tracking.mlflow_run import MlflowRun
from smdp_engine.tracking.numbers import Report


class Param(NamedTuple):
    key: str
    value: str


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class RefusedError(Exception):
    error_code = "INVALID_PARAMETER_VALUE"


class Client:
    """MLflow's client, with MLflow's rule for names. A call with one refused name stores nothing."""

    def __init__(self, **_: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.params: Dict[str, str] = {}
        self.metrics: List[Metric] = []
        self.refused_names = {"refused", "refused/too"}
        self.fails = 0

    def get_experiment_by_name(self, _: str) -> Any:
        return type("Experiment", (), {"experiment_id": "1"})

    def create_run(self, experiment: str, tags: Dict[str, str]) -> Any:
        del experiment, tags
        self.calls["create_run"] += 1
        return type("Run", (), {"info": type("Info", (), {"run_id": "run-1"})})

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        assert run == "run-1"
        self.calls["log_batch"] += 1
        if self.fails:
            self.fails -= 1
            raise OSError("down")
        for name in [one.key for one in (*metrics, *params)]:
            path = posixpath.normpath(name)
            is_refused = path != name or path == "." or path.startswith(("..", "/"))
            if is_refused or not re.match(r"^[/\w.\- ]*$", name) or len(name) > 250 or name in self.refused_names:
                raise RefusedError(f"Invalid value for {name!r}\nmore lines")
        assert len({one.key for one in params}) == len(params)
        self.metrics += metrics
        self.params.update({one.key: one.value for one in params})


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    only = Client()
    modules = {
        "mlflow": {},
        "mlflow.tracking": {"MlflowClient": lambda **_: only},
        "mlflow.entities": {"Metric": Metric, "Param": Param},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("TRAINING_JOB_NAME", raising=False)
    return only


def started(said: List[str]) -> MlflowRun:
    run = MlflowRun()
    run.say = said.append  # type: ignore[method-assign, assignment]
    run.start()
    return run


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("val/acc", "val/acc"),
        ("val//acc", "val/acc"),
        ("/acc", "acc"),
        ("acc/", "acc"),
        ("./acc", "_/acc"),
        ("a/../b", "a/__/b"),
        ("..", "__"),
        ("..acc", "__acc"),
        ("...", "__."),
        ("/..acc", "__acc"),
        (".acc", ".acc"),
        ("a:b=c", "a_b_c"),
        ("//", "_"),
        ("", "_"),
        (249 * "x" + "/y", 249 * "x"),
    ],
)
def test_name_that_mlflow_refuses_is_changed(client: Client, name: str, sent: str) -> None:
    said: List[str] = []
    started(said).send([Report(1.5, 3, {name: 0.5})])
    assert (client.metrics, said) == ([Metric(sent, 0.5, 1500, 3)], [])


def test_refused_metrics_alone_are_lost(client: Client) -> None:
    said: List[str] = []
    run = started(said)
    values = {**{f"metric{one}": float(one) for one in range(10)}, "refused": 1.0, "refused/too": 2.0}
    run.send([Report(1.0, step, values) for step in range(300)])
    assert len(client.metrics) == 3000
    assert said == [
        "2 metrics were refused, and are not in the run: refused, refused/too. The reason: Invalid value for 'refused'"
    ]
    calls = client.calls["log_batch"]
    run.send([Report(1.0, step, values) for step in range(100)])
    assert (len(client.metrics), client.calls["log_batch"] - calls, len(said)) == (4000, 2, 1)


def test_refused_parameters_alone_are_missing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_HPS", json.dumps({"lr": 0.1, "model//name": "small", "refused": 1, "a/": 1, "a": 2}))
    said: List[str] = []
    started(said)
    assert client.params == {"lr": "0.1", "model/name": "small", "a": "2"}
    assert said == [
        "1 parameters were refused, and are not in the run: refused. The reason: Invalid value for 'refused'"
    ]


def test_start_that_is_repeated_creates_no_second_run(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_HPS", json.dumps({"lr": 0.1}))
    client.fails = 1
    run = MlflowRun()
    with pytest.raises(OSError, match="down"):
        run.start()
    assert run.start().startswith("run run-1 of experiment Default in ")
    assert (client.calls["create_run"], client.params) == (1, {"lr": "0.1"})
