"""The verdict names the cause of runs whose cause is known, and is a verdict for any numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.diagnosis.advice import advice
from smdp_launch.diagnosis.blame import CAUSES
from smdp_launch.diagnosis.report import EXIT_CODES, diagnosis_json
from smdp_launch.diagnosis.texts import figures, hedged, sentence
from smdp_launch.diagnosis.verdict import Verdict, diagnose
from smdp_launch.run_metrics.run import PHASES, RunMetrics
from tests.support.numbers.run_events import BEGAN, HANG, WINDOW, Step, log_lines, metrics_of, run_events

IDLE = {"cores": 8, "cpu_s": 5.0}
BUSY = {"cores": 8, "cpu_s": 39.0}
#: A loader whose batch costs 120 ms: blocked, or on a CPU.
BLOCKED = {"load_batches": 1, "load_s": 0.12, "load_cpu_s": 0.01, "load_queued_s": 0.001}
ON_CPU = {"load_batches": 1, "load_s": 0.12, "load_cpu_s": 0.11, "load_queued_s": 0.005}
COMPUTING = {"forward": 0.02, "backward": 0.02, "optimizer": 0.002, "exchange": 0.001}


def waits(seconds: float) -> Step:
    return {"input": seconds, **COMPUTING}


def slow(ranks: set[int], phase: str, **other: float) -> Callable[[int], Step]:
    """Ranks that take 50 ms longer in a phase, for which the others wait."""

    def step(rank: int) -> Step:
        extra = {phase: COMPUTING.get(phase, 0.0) + 0.05} if rank in ranks else {"exchange": 0.051}
        return {"input": 0.0, **COMPUTING, **extra, **other}

    return step


#: Cause, the step of each rank, and the hosts' resources.
GOLDEN: dict[str, tuple[str, Callable[[int], Step], dict[str, Any] | None]] = {
    "the storage is slow": ("source", lambda _: {**waits(0.08), **BLOCKED, "load_workers": 1}, IDLE),
    "the storage is slow, and no worker hides it": (
        "source",
        lambda _: {**waits(0.3), **BLOCKED, "load_s": 0.3, "load_workers": 0},
        IDLE,
    ),
    "reads wait without loader workers": (
        "workers",
        lambda _: {**waits(0.04), **BLOCKED, "load_s": 0.04, "load_workers": 0},
        IDLE,
    ),
    "decoding uses all cores": ("decoding", lambda _: {**waits(0.08), **ON_CPU, "load_workers": 2}, BUSY),
    "decoding waits for cores, whose number is unknown": (
        "decoding",
        lambda _: {**waits(0.08), **ON_CPU, "load_cpu_s": 0.04, "load_queued_s": 0.07, "load_workers": 1},
        None,
    ),
    "one worker decodes beside idle cores": ("workers", lambda _: {**waits(0.08), **ON_CPU, "load_workers": 1}, IDLE),
    "no worker decodes": (
        "workers",
        lambda _: {**waits(0.03), **ON_CPU, "load_s": 0.03, "load_cpu_s": 0.029, "load_workers": 0},
        IDLE,
    ),
    "workers that keep up start in each epoch": (
        "workers",
        lambda _: {**waits(0.02), **ON_CPU, "load_s": 0.03, "load_cpu_s": 0.029, "load_workers": 8},
        IDLE,
    ),
    "rank 0 reads from slow storage for all ranks": (
        "source",
        lambda rank: {**waits(0.3), "load_workers": 0, **({**BLOCKED, "load_s": 0.3} if rank == 0 else {})},
        IDLE,
    ),
    "rank 0 decodes for all ranks": (
        "decoding",
        lambda rank: {**waits(0.08), "load_workers": 2, **(ON_CPU if rank == 0 else {})},
        BUSY,
    ),
    "the training thread reads from slow storage": ("source", lambda _: {**waits(0.08), **BLOCKED}, IDLE),
    "all compute": ("computing", lambda _: {**waits(0.001)}, IDLE),
    "all wait for the network": ("exchanges", lambda _: {**waits(0.001), "exchange": 0.08}, IDLE),
    "one rank computes longer": ("slow_worker", slow({2}, "forward"), IDLE),
    "one rank's code outside of the phases takes longer": ("slow_worker", slow({3}, "other"), IDLE),
    "all ranks of a host compute longer": ("slow_host", slow({2, 3}, "backward"), IDLE),
    "rank 0 saves": ("checkpoints", slow({0}, "checkpoint"), IDLE),
    "all ranks save": ("checkpoints", lambda _: {**waits(0.001), "checkpoint": 0.05}, IDLE),
    "rank 0 logs": ("logging", slow({0}, "logging"), IDLE),
    "all ranks evaluate": ("evaluation", lambda _: {**waits(0.001), "evaluation": 0.05}, IDLE),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_known_cause_is_named(case: str) -> None:
    cause, steps, resources = GOLDEN[case]
    verdict = diagnose(metrics_of(run_events(steps, resources=resources)))
    assert verdict.cause == cause
    assert verdict.sure == "high"
    assert advice(verdict) or cause == "computing"
    assert sentence(verdict)


def test_script_that_reads_without_a_loader_is_advised_to_use_one() -> None:
    verdict = diagnose(metrics_of(run_events(lambda _: {**waits(0.08), **BLOCKED}, resources=IDLE)))
    assert advice(verdict)[0].startswith("read the data in a DataLoader")


def test_slow_rank_is_named_with_its_host_and_phase() -> None:
    verdict = diagnose(metrics_of(run_events(slow({2}, "forward"), resources=IDLE)))
    assert (verdict.ranks, verdict.host, verdict.spends) == ((2,), "algo-2", "forward")
    assert verdict.seconds == pytest.approx(0.05, rel=0.01)
    assert verdict.step_s is not None
    assert verdict.gain == pytest.approx(verdict.step_s / (verdict.step_s - 0.05), rel=0.01)
    assert "rank 2 on algo-2" in sentence(verdict)
    assert [one.cause for one in verdict.workers] == ["slow_worker", "slow_worker", "computing", "slow_worker"]


def test_rank_with_an_empty_queue_is_not_slow_if_all_loaders_are_equally_slow() -> None:
    def step(rank: int) -> Step:
        loader = {**BLOCKED, "load_workers": 1}
        return {**waits(0.08), **loader} if rank == 1 else {**waits(0.0), **loader, "exchange": 0.081}

    verdict = diagnose(metrics_of(run_events(step, resources=IDLE)))
    assert verdict.cause == "source"
    assert verdict.seconds == pytest.approx(0.08, rel=0.01)


@pytest.mark.parametrize(("load_s", "source", "exchanges"), [(0.142, 0.04 + 0.9 * 0.06, 0.006), (0.1, 0.04, 0.06)])
def test_waits_for_ranks_without_batches_are_input_if_no_loader_pauses(
    load_s: float, source: float, exchanges: float
) -> None:
    """Each rank waits for its input in some steps, and in the others for the ranks that wait for theirs."""
    step = {**waits(0.04), **BLOCKED, "load_s": load_s, "load_workers": 1, "exchange": 0.06}
    events = run_events(lambda _: step, resources=IDLE)
    waited = {
        "seconds": WINDOW,
        "wait_local_s": 1.0,
        "wait_hosts_s": 0.8,
        "wire_s": 0.1,
        "copy_s": 0.06,
        "reduce_s": 0.04,
    }
    timings = [event for event in events if event[0] == "timing"]
    events += [("engine", waited, host, rank, at) for _, _, host, rank, at in timings]
    verdict = diagnose(metrics_of(events))
    assert verdict.shares["source"] * (verdict.step_s or 0) == pytest.approx(source, rel=0.01)
    assert verdict.shares["exchanges"] * (verdict.step_s or 0) == pytest.approx(exchanges, rel=0.01)
    if load_s < 0.142:
        assert (verdict.cause, verdict.sure) == ("exchanges", "medium")
    else:
        assert (verdict.cause, verdict.sure) == ("source", "high")


def test_rank_with_a_slower_loader_is_slow() -> None:
    def step(rank: int) -> Step:
        if rank == 1:
            return {**waits(0.08), **BLOCKED, "load_workers": 1}
        return {**waits(0.0), **BLOCKED, "load_s": 0.02, "load_workers": 1, "exchange": 0.081}

    verdict = diagnose(metrics_of(run_events(step, resources=IDLE)))
    assert (verdict.cause, verdict.ranks, verdict.spends) == ("slow_worker", (1,), "input")
    assert "input (source)" in sentence(verdict)


def test_checkpoint_of_one_rank_hides_no_slow_rank() -> None:
    def step(rank: int) -> Step:
        saved, slower = 0.02 * (rank == 0), 0.05 * (rank == 3)
        return {**COMPUTING, "checkpoint": saved, "other": slower, "exchange": 0.071 - saved - slower}

    verdict = diagnose(metrics_of(run_events(step, resources=IDLE)))
    assert (verdict.cause, verdict.ranks) == ("slow_worker", (3,))
    assert verdict.seconds == pytest.approx(0.05, rel=0.01)
    assert verdict.shares["checkpoints"] * (verdict.step_s or 0) == pytest.approx(0.02, rel=0.01)


def test_warm_up_and_end_are_left_out() -> None:
    events = run_events(lambda _: waits(0.001), resources=IDLE)
    first, last = events[1][4], events[-1][4]
    for name, fields, _, _, at in events:
        if name == "timing" and at in (first, last):
            fields |= {"input_s": 5.0, **{f"{phase}_s": 0.0 for phase in PHASES if phase != "input"}}
    verdict = diagnose(metrics_of(events))
    assert verdict.cause == "computing"
    assert verdict.windows == 8


def test_few_windows_are_not_sure() -> None:
    assert diagnose(metrics_of(run_events(lambda _: waits(0.08), windows=1))).sure == "low"


@pytest.mark.parametrize(
    ("events", "missing"),
    [
        ([], "The log has no event of a job."),
        (run_events(lambda _: waits(0.1), windows=0), "The workers sent no timing event"),
        ([("timing", {"window": 5.0, "input_s": 5.0}, "algo-1", 0, 1.0)], "No worker has reported an optimizer step"),
    ],
    ids=["no event", "no timing", "no step"],
)
def test_unknown_says_what_is_missing(events: list[Any], missing: str) -> None:
    verdict = diagnose(metrics_of(events))
    assert verdict.cause == "unknown"
    assert verdict.missing[0].startswith(missing)


@pytest.mark.parametrize("case", GOLDEN)
def test_verdict_does_not_depend_on_the_order_of_ranks(case: str) -> None:
    _, steps, resources = GOLDEN[case]
    events = run_events(steps, resources=resources)
    mixed = events.copy()
    random.Random(case).shuffle(mixed)
    mixed.sort(key=lambda one: one[4])  # the order of times stays
    assert diagnosis_json(diagnose(metrics_of(mixed)), None) == diagnosis_json(diagnose(metrics_of(events)), None)


_FIELDS = [
    *(f"{phase}_s" for phase in PHASES),
    *("window", "seconds", "steps", "batches", "load_batches", "load_s", "load_cpu_s", "load_queued_s", "load_bytes"),
    *("load_workers", "cores", "cpu_s", "workers_cpu_s", "gpu_use", "what", "ranks"),
]
_NUMBERS = st.one_of(st.floats(), st.integers(-5, 10**20), st.sampled_from([0, 1, 5.0, 1e-300, 1.7e308]))
_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["timing", "timing", "resources", "engine", "hang"]),
        st.dictionaries(st.sampled_from(_FIELDS), _NUMBERS),
        st.sampled_from(["algo-1", "algo-2"]),
        st.sampled_from([None, 0, 1, 2]),
        st.floats(0, 1e10),
    ),
    max_size=25,
)


@given(_EVENTS)
def test_any_numbers_give_a_verdict_whose_shares_sum_to_one(events: list[Any]) -> None:
    verdict = diagnose(metrics_of(events))
    assert verdict.cause in EXIT_CODES
    assert figures(verdict) is not None
    assert diagnosis_json(verdict, None)
    for one in (verdict, *verdict.workers):
        if verdict.step_s is not None:
            assert sum(one.shares.values()) == pytest.approx(1.0)
            assert set(one.shares) == set(CAUSES)
            assert all(0 <= share <= 1 + 1e-9 for share in one.shares.values())


def test_exit_codes_are_distinct_and_leave_other_codes_alone() -> None:
    assert set(EXIT_CODES) == {*CAUSES, "unknown", "hang"}
    assert sorted(EXIT_CODES.values()) == [0, *range(20, 31)]


def test_verdict_of_no_rank_is_a_verdict() -> None:
    assert diagnose(RunMetrics()) == Verdict("unknown", missing=("The log has no event of a job.",))


def test_exchange_of_a_single_worker_is_computing() -> None:
    def step(_: int) -> Step:
        return {**waits(0.001), "exchange": 0.01}

    alone = diagnose(metrics_of(run_events(step, world_size=1, resources=IDLE)))
    assert (alone.cause, alone.shares["exchanges"], alone.workers[0].shares["exchanges"]) == ("computing", 0, 0)
    one_of_two = [one for one in run_events(step, world_size=2, resources=IDLE) if one[3] != 1]
    assert diagnose(metrics_of(one_of_two)).cause == "exchanges"


def test_hang_is_the_verdict_until_it_is_over() -> None:
    events = [*run_events(lambda _: waits(0.1)), *HANG]
    found = diagnose(metrics_of(events))
    since = "The job hangs: no progress since 2026-09-21 14:14:10 UTC"
    assert sentence(found) == hedged(found) == f"{since}, rank 2 on algo-2 is in forward at load (data.py:14)."
    assert (found.cause, found.ranks, found.host) == ("hang", (2,), "algo-2")
    stacks, stop = advice(found)
    assert stacks == "read the stacks in the log: `smdp-launch logs --host algo-2 --grep hang`"
    assert stop.startswith("stop the job if it still runs and does not continue")
    over = [("hang", {"what": "over", "seconds": 9.0}, host, None, BEGAN + 200) for host in ("algo-1", "algo-2")]
    assert diagnose(metrics_of([*events, over[0]])).cause == "hang"
    assert diagnose(metrics_of([*events, *over])).cause != "hang"
    again = [("workers_started", {"world_size": 4}, host, None, BEGAN + 200) for host in ("algo-1", "algo-2")]
    assert diagnose(metrics_of([*events, *again])).cause != "hang"


def test_hang_keeps_the_figures_of_the_time_before_it() -> None:
    events = run_events(lambda _: waits(0.1), resources=IDLE)
    before, hung = diagnose(metrics_of(events)), diagnose(metrics_of([*events, *HANG]))
    assert (hung.step_s, hung.shares, hung.workers) == (before.step_s, before.shares, before.workers)
    assert dict(figures(hung))["step"].endswith("(40 s and 279 steps read before the hang, after 5 s of warm-up)")
    assert "sure" not in dict(figures(hung))


@pytest.mark.parametrize("event", ["worker_exit", "host_failed", None])
def test_hang_of_an_ended_job_is_reported_without_advice_to_stop_it(event: str | None) -> None:
    metrics = metrics_of([*run_events(lambda _: waits(0.1)), *HANG])
    if event is None:
        metrics.ended = True  # as its status says
    else:
        metrics.add(event, {"error": "hang: rank 2"}, "algo-1", None, BEGAN + 200)
    found = diagnose(metrics)
    assert sentence(found) == (
        "The job hung before it ended: no progress since 2026-09-21 14:14:10 UTC. The last report: rank 2 on algo-2 is "
        "in forward at load (data.py:14)."
    )
    assert advice(found) == ["read the stacks in the log: `smdp-launch logs --host algo-2 --grep hang`"]


def test_lines_have_every_event() -> None:
    assert len(log_lines(run_events(lambda _: waits(0.1)))) == 41


def test_verdict_without_some_workers_is_not_sure_and_says_so() -> None:
    events = run_events(lambda _: waits(0.1), resources=IDLE)
    whole = diagnose(metrics_of(events))
    assert (whole.sure, whole.silent, hedged(whole)) == ("medium", (), sentence(whole))
    found = diagnose(metrics_of([one for one in events if one[3] not in (2, 3)]))
    assert (found.sure, found.silent) == ("low", (2, 3))
    assert "No timing event with a step: rank 2, 3. The figures are of the other ranks only." in found.missing
    assert ("sure", "low (8 intervals of each worker, 2 workers missing)") in figures(found)
    assert hedged(found) == f"{sentence(found)} This is not sure: `smdp-launch diagnose` shows the figures."
