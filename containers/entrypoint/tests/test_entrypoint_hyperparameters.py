from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_entrypoint.contract.hyperparameters import Hyperparameters, decode_value, to_arguments

pytestmark = pytest.mark.conformance

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_a_value_encoded_as_the_sdk_does_comes_back(value: Any) -> None:
    assert decode_value(json.dumps(value)) == value


@given(st.text())
def test_text_that_is_not_json_is_kept_as_it_is(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert decode_value(text) == text


def test_nesting_too_deep_for_the_parser_is_kept_as_text() -> None:
    # Some Pythons parse this, others give up; no Python may crash on it.
    text = "[" * 2500
    assert decode_value(text) == text


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=6))
def test_every_hyperparameter_gives_one_option_and_one_value_in_order_of_names(values: dict[str, Any]) -> None:
    arguments = to_arguments(values)
    names = sorted(values)
    assert arguments[::2] == [f"--{name}" if len(name) > 1 else f"-{name}" for name in names]
    assert len(arguments[1::2]) == len(names)
    for name, shown in zip(names, arguments[1::2]):
        value = values[name]
        if isinstance(value, str):
            assert shown == value
        elif value is not None and not isinstance(value, dict):
            assert shown == repr(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "True"),
        (None, ""),
        (0.1, "0.1"),
        (3, "3"),
        ("a b 'c'", "a b 'c'"),
        ([1, "a", None], "[1, 'a', None]"),
        ({"b": 2, "a": None, "c": "x y"}, "a=None,b=2,c=x y"),
        ({}, ""),
    ],
)
def test_values_look_as_under_the_toolkit(value: Any, shown: str) -> None:
    assert to_arguments({"name": value}) == ["--name", shown]


def test_the_platforms_names_are_parted_from_the_scripts() -> None:
    parted = Hyperparameters.decode(
        {
            "sagemaker_program": '"train.py"',
            "sagemaker_mpi_enabled": "true",
            "sagemaker_anything": "1",
            "default_user_module_name": "x",
            "_tuning_objective_metric": "loss",
            "mp_parameters": "{}",
            "epochs": "3",
            "plain": 4,
        }
    )
    assert parted.script == {"mp_parameters": {}, "epochs": 3, "plain": 4}
    assert parted.framework == {"sagemaker_mpi_enabled": True, "sagemaker_anything": 1}
    assert set(parted.own) == {"sagemaker_program", "default_user_module_name", "_tuning_objective_metric"}


@pytest.mark.parametrize(
    ("raw", "on"), [("true", True), ("True", True), ("1", True), ("false", False), ("False", False), ('""', False)]
)
def test_a_flag_counts_by_its_meaning(raw: str, on: bool) -> None:
    assert Hyperparameters.decode({"sagemaker_mpi_enabled": raw}).flag("sagemaker_mpi_enabled") is on
