from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_entrypoint.contract.hyperparameters import Hyperparameters, decode_value, to_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from entrypoint_support.host import Host

pytestmark = pytest.mark.conformance

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_value_encoded_as_in_the_sdk_is_decoded(value: Any) -> None:
    assert decode_value(json.dumps(value)) == value


@given(st.text())
def test_text_that_is_not_json_is_unchanged(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        assert decode_value(text) == text


def test_value_nested_too_deeply_stays_text() -> None:
    # Some Pythons parse this, others give up; no Python may crash on it.
    text = "[" * 2500
    assert decode_value(text) == text


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=6))
def test_each_hyperparameter_gives_one_option_and_one_value_sorted_by_name(values: dict[str, Any]) -> None:
    arguments = to_arguments(values)
    names = sorted(values)
    assert arguments[::2] == [f"--{name}" if len(name) > 1 else f"-{name}" for name in names]
    assert len(arguments[1::2]) == len(names)
    for name, text in zip(names, arguments[1::2]):
        value = values[name]
        if isinstance(value, str):
            assert text == value
        elif value is not None and not isinstance(value, dict):
            assert text == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
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
def test_values_are_formatted_as_in_the_toolkit(value: Any, text: str) -> None:
    assert to_arguments({"name": value}) == ["--name", text]


def test_platform_hyperparameters_are_separated_from_the_scripts() -> None:
    decoded = Hyperparameters.decode(
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
    assert decoded.script == {"mp_parameters": {}, "epochs": 3, "plain": 4}
    assert decoded.framework == {"sagemaker_mpi_enabled": True, "sagemaker_anything": 1}
    assert set(decoded.own) == {"sagemaker_program", "default_user_module_name", "_tuning_objective_metric"}


OBJECTIVE = {"_tuning_objective_metric": "accuracy"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({**OBJECTIVE, "model_dir": '"s3://bucket/job/model"'}, {"model_dir": "s3://bucket/job/model/job-001/model"}),
        ({**OBJECTIVE, "model_dir": '"/opt/ml/model"'}, {"model_dir": "/opt/ml/model"}),
        ({**OBJECTIVE, "model_dir": "false"}, {"model_dir": False}),
        (OBJECTIVE, {}),
        ({"model_dir": '"s3://bucket/job/model"'}, {"model_dir": "s3://bucket/job/model"}),
    ],
)
def test_only_trials_get_a_model_dir_of_their_own(raw: dict[str, str], expected: dict[str, Any]) -> None:
    assert Hyperparameters.decode(raw).with_model_dir_of_trial("job-001").script == expected


@pytest.mark.parametrize("has_tensorflow", [True, False])
def test_trial_with_tensorflow_sees_its_model_dir_everywhere(host: Host, tmp_path: Path, has_tensorflow: bool) -> None:
    (tmp_path / "site" / ("tensorflow" if has_tensorflow else "other")).mkdir(parents=True)
    script = """
        import json, os, sys
        names = ("SM_HP_MODEL_DIR", "SM_USER_ARGS", "SM_HPS", "SM_TRAINING_ENV")
        print(json.dumps([sys.argv[1:], *(os.environ[name] for name in names)]))
        """
    host.job(script, model_dir="s3://b/m", _tuning_objective_metric="accuracy")
    path = f"{host.environ()['PYTHONPATH']}:{tmp_path / 'site'}"
    assert host.run(TRAINING_JOB_NAME="job-001", SMDP_WORKERS_PER_HOST="1", PYTHONPATH=path) == 0
    own = "s3://b/m/job-001/model" if has_tensorflow else "s3://b/m"
    arguments, value, user_arguments, values, everything = json.loads(host.of_rank(0)[0])
    assert (arguments, value, json.loads(user_arguments)) == (["--model_dir", own], own, ["--model_dir", own])
    assert json.loads(values) == json.loads(everything)["hyperparameters"] == {"model_dir": own}


@pytest.mark.parametrize(
    ("raw", "on"), [("true", True), ("True", True), ("1", True), ("false", False), ("False", False), ('""', False)]
)
def test_flag_text_is_read_by_its_meaning(raw: str, on: bool) -> None:
    assert Hyperparameters.decode({"sagemaker_mpi_enabled": raw}).flag("sagemaker_mpi_enabled") is on
