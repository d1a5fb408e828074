"""Errors of the section sweep that SageMaker reports after the launch, or never."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic
from tests.conftest import JOB, write_job

HEAD = JOB + "metrics: {loss: 'loss=([0-9.]+)'}\n"
SCRIPT = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--lr", type=float)
parser.add_argument("--depth", type=int)
parser.add_argument("--optimizer", choices=["sgd", "adam"])
parser.parse_args()
"""


def errors(folder: Path, ranges: str, more: str = "", head: str = HEAD, script: str = SCRIPT) -> list[Diagnostic]:
    trials = "" if "trials:" in more or "grid" in more else ", trials: 2"
    sweep = f"sweep: {{objective: {{metric: loss, goal: minimize}}, ranges: {{{ranges}}}{trials}{more}}}\n"
    found = check_job(write_job(folder, head + sweep, script), environ={}).diagnostics
    return [one for one in found if one.severity.value == "error"]


def codes(found: list[Diagnostic]) -> list[str]:
    return [one.code for one in found]


LR = "continuous: {lr: {min: 0.001, max: 0.1}}"


@pytest.mark.parametrize(
    ("ranges", "more", "wanted"),
    [
        (LR, "", []),
        ("continuous: {rate: {min: 0.001, max: 0.1}}", "", ["SMDP432"]),
        ("continuous: {depth: {min: 1, max: 8}}", "", ["SMDP433"]),
        ("categorical: {depth: [1, two]}", "", ["SMDP433"]),
        ("categorical: {optimizer: [sgd, lamb]}", "", ["SMDP434"]),
        ("integer: {epochs: {min: 1, max: 3}}", "", ["SMDP522"]),
        (f"{LR}, categorical: {{lr: [1, 2]}}", "", ["SMDP522"]),
        ("", "", ["SMDP523"]),
        ("integer: {depth: {min: 3, max: 3}}", "", ["SMDP523"]),
        ("categorical: {depth: [1, 2, 1]}", "", ["SMDP523"]),
        ("integer: {depth: {min: 0, max: 3, scaling: logarithmic}}", "", ["SMDP524"]),
        ("continuous: {lr: {min: 0, max: 1, scaling: reverse_logarithmic}}", "", ["SMDP524"]),
        ("continuous: {lr: {min: 0, max: 0.999, scaling: reverse_logarithmic}}", "", []),
        ("integer: {depth: {min: 0, max: 3, scaling: reverse_logarithmic}}", "", ["SMDP204"]),
        (LR, ", strategy: grid", ["SMDP525"]),
        ("categorical: {depth: [1, 2]}", ", strategy: grid, trials: 2", []),
        ("categorical: {depth: [1, 2]}", ", strategy: grid, trials: 3", ["SMDP525"]),
        ("categorical: {depth: [1, 2]}", ", strategy: grid, parallel: 3", ["SMDP526"]),
        (LR, ", strategy: hyperband", []),  # epochs has one value
        (LR, ", strategy: hyperband, hyperband: {min_resource: 9, max_resource: 3}", ["SMDP525"]),
        (LR, ", strategy: hyperband, early_stopping: auto", ["SMDP525"]),
        (LR, ", strategy: random, hyperband: {max_resource: 3}", ["SMDP525"]),
        (LR, ", parallel: 10", ["SMDP526"]),
        ("integer: {depth: {min: 1, max: 3}}, categorical: {optimizer: [sgd, adam]}", ", trials: 6", []),
        ("integer: {depth: {min: 1, max: 3}}, categorical: {optimizer: [sgd, adam]}", ", trials: 7", ["SMDP532"]),
        (f"integer: {{depth: {{min: 1, max: 3}}}}, {LR}", ", trials: 7", []),
        (LR, ", budget: {max_run: 60}", ["SMDP204"]),
        (LR, ", warm_start: {parents: [a, b, c, d, e, f]}", ["SMDP204"]),
        (LR, ", warm_start: {parents: [a, b, a]}", ["SMDP533"]),
    ],
)
def test_error_is_reported_before_the_launch(tmp_path: Path, ranges: str, more: str, wanted: list[str]) -> None:
    assert codes(errors(tmp_path, ranges, more)) == wanted


def test_missing_number_of_trials_is_reported(tmp_path: Path) -> None:
    sweep = f"sweep: {{objective: {{metric: loss, goal: minimize}}, ranges: {{{LR}}}}}\n"
    (found,) = check_job(write_job(tmp_path, HEAD + sweep, SCRIPT), environ={}).diagnostics
    assert (found.code, found.help) == ("SMDP525", "add it, such as `trials: 20`")


def test_range_counts_as_a_set_argument(tmp_path: Path) -> None:
    script = SCRIPT.replace('"--lr", type=float', '"--lr", type=float, required=True')
    assert codes(errors(tmp_path, LR, script=script)) == []
    assert codes(errors(tmp_path, "integer: {depth: {min: 1, max: 3}}", script=script)) == ["SMDP436"]


def test_thirty_one_ranges_are_too_many(tmp_path: Path) -> None:
    half = ", ".join(f"a{number}: {{min: 1, max: 2}}" for number in range(15))
    other = ", ".join(f"b{number}: {{min: 1, max: 2}}" for number in range(16))
    ranges = f"integer: {{{half}}}, continuous: {{{other}}}"
    (found,) = errors(tmp_path, ranges, script="print('trained')\n")
    assert (found.code, found.message) == (
        "SMDP528",
        "31 ranges are too many: SageMaker allows 30 of all kinds together",
    )


def test_hyperparameters_and_ranges_together_are_at_most_100(tmp_path: Path) -> None:
    fixed = ", ".join(f"f{number}: 1" for number in range(86))
    head = HEAD.replace("{epochs: 2}", f"{{{fixed}}}")
    ranges = f"integer: {{{', '.join(f'{name}: {{min: 1, max: 2}}' for name in 'abcde')}}}"
    # 86 values, 5 ranges, 8 of the launcher and one of SageMaker are 100.
    assert codes(errors(tmp_path, ranges, head=head, script="print('trained')\n")) == []
    more = ranges.replace("a: {", "g: {min: 1, max: 2}, a: {", 1)
    assert codes(errors(tmp_path, more, head=head, script="print('trained')\n")) == ["SMDP528"]


def test_setting_that_a_tuning_job_lacks_is_an_error(tmp_path: Path) -> None:
    overlay = "overlay: {ExperimentConfig: {ExperimentName: e}, AlgorithmSpecification: {ContainerArguments: [x]}}\n"
    found = errors(tmp_path, LR, head=f"{HEAD}{overlay}remote_debug: true\n")
    assert codes(found) == ["SMDP527"] * 3
    assert [one.message.split()[5].rstrip(",") for one in found if "overlay" not in one.text] == [
        "ExperimentConfig",
        "AlgorithmSpecification.ContainerArguments",
        "RemoteDebugConfig",
    ]


@pytest.mark.parametrize(
    ("line", "warns"),
    [
        ("", True),
        ("import os; folder = os.environ['TRAINING_JOB_NAME']\n", False),
        ("import os; folder = os.environ['SM_MODEL_DIR']\n", True),
    ],
)
def test_trials_that_share_checkpoints_are_a_warning(tmp_path: Path, line: str, warns: bool) -> None:
    head = f"{HEAD}checkpoint: {{s3: 's3://example-results/checkpoints'}}\n"
    sweep = f"sweep: {{objective: {{metric: loss, goal: minimize}}, ranges: {{{LR}}}, trials: 2}}\n"
    found = check_job(write_job(tmp_path, head + sweep, line + SCRIPT), environ={}).diagnostics
    shared = [one for one in found if one.code == "SMDP531"]
    assert [one.severity.value for one in shared] == ["warning"] * warns
    assert all('os.path.join("/opt/ml/checkpoints", os.environ["TRAINING_JOB_NAME"])' in one.help for one in shared)
    one_job = check_job(write_job(tmp_path, head, line + SCRIPT), environ={}).diagnostics
    assert "SMDP531" not in codes(one_job)


def test_schema_error_in_the_sweep_hides_its_rules(tmp_path: Path) -> None:
    assert codes(errors(tmp_path, "integer: {depth: {min: x, max: 3}}, continuous: {nothing: {min: 2, max: 1}}")) == [
        "SMDP203"
    ]


def test_units_are_corrected(tmp_path: Path) -> None:
    (found,) = errors(tmp_path, LR, ", budget: {max_run: 2h}")
    assert found.help == "write 7200, the number of seconds without a unit"
