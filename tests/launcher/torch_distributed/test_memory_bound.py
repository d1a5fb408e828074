"""The lower bound of a model's memory is never above what its training needs, as torch's allocator measures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.jobfile.model.spec import Model
from smdp_launch.request.memory import least_memory

pytestmark = [pytest.mark.torch, pytest.mark.runs, pytest.mark.timeout(900)]
PROGRAM = Path(__file__).parent / "memory_models.py"
#: Models whose activations are small: the bound is most of what they need.
TIGHT = ("perceptron-sgd", "perceptron-momentum", "perceptron-adamw", "perceptron-bfloat16", "lstm-adagrad")


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, PROGRAM], env=one_thread, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def bound(row: dict[str, Any]) -> int:
    keys = ("parameters", "trainable", "optimizer", "dtype")
    return least_memory(Model.model_validate({key: row[key] for key in keys}), 1).total


def test_bound_is_not_above_measured_peak(measured: list[dict[str, Any]]) -> None:
    assert len(measured) == 12
    for row in measured:
        share = bound(row) / row["peak"]
        print(f"{row['name']}: at least {bound(row):,}, measured {row['peak']:,} bytes ({share:.0%})")
    assert [row["name"] for row in measured if bound(row) > row["peak"]] == []


def test_bound_is_most_of_a_model_with_small_activations(measured: list[dict[str, Any]]) -> None:
    """The measurement counts what it should: a peak that is far too high would hide a bound that is too high."""
    shares = {row["name"]: bound(row) / row["peak"] for row in measured}
    assert {name: shares[name] for name in TIGHT if shares[name] < 0.55} == {}


def test_sharding_divides_what_it_names() -> None:
    model = Model.model_validate({"parameters": 1000, "optimizer": "adamw"})
    levels = ("none", "optimizer", "gradients", "parameters")
    needs = [least_memory(model.model_copy(update={"sharding": one}), 10) for one in levels]
    assert [tuple(one) for one in needs] == [
        (4000, 4000, 8000),
        (4000, 4000, 800),
        (4000, 400, 800),
        (400, 400, 800),
    ]
    assert least_memory(model, 10, offloads_states=True).total == 4000
    assert least_memory(model, 10, offloads_states=True, offloads_parameters=True).total == 0
