"""A sweep as `trials` shows it."""

from __future__ import annotations

import pytest

from smdp_launch.cli.render.sweeps import print_sweep, state_text
from smdp_launch.jobs.sweeps import SweepState, Trial


def trial(number: int, status: str, objective: float | None = None, reason: str | None = None) -> Trial:
    return Trial(f"mine-{number:03d}", status, {"depth": str(number)}, objective, 3.0, reason)


def sweep(*trials: Trial) -> SweepState:
    return SweepState("mine", "Completed", "loss", "minimize", len(trials), trials, "mine-001", None)


def test_failed_and_stopped_trials_are_counted_and_failures_have_their_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, died = "AlgorithmError: exited with\ncode 3", "InternalServerError: the supervisor died"
    shown = sweep(
        trial(1, "Completed", 0.5),
        trial(2, "Stopped", 0.75),
        trial(3, "Failed", None, own),
        trial(4, "Failed", None, died),
    )
    assert state_text(shown) == "Completed, 4 of 4 trials ended, 2 failed, 1 stopped, best loss 0.5"
    print_sweep(shown)
    lines = capsys.readouterr().out.splitlines()
    assert "mine-003 failed: AlgorithmError: exited with code 3" in lines
    assert f"mine-004 failed: {died}" in lines


def test_reasons_of_many_failed_trials_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_sweep(sweep(trial(1, "Completed", 0.5), *(trial(one, "Failed", None, "why") for one in range(2, 9))))
    lines = capsys.readouterr().out.splitlines()
    assert [one for one in lines if one.endswith(" failed: why")] == [
        f"mine-00{one} failed: why" for one in range(2, 7)
    ]
    assert "2 more trials failed: --json has the reasons" in lines
