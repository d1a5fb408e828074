"""Scaling studies: the questions to the model, and the results from its answers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog.exchange import efa_rate, rate_within_host, ring_rate
from smdp_launch.catalog.instances import instances
from smdp_launch.errors import ExitCode
from smdp_launch.scaling.inputs import Flags, Inputs, MissingInput, gpu_instance, inputs
from smdp_launch.scaling.measured import Measured, RunEvents, measured, step_of
from smdp_launch.scaling.program import ask_all, default_costs, find_program
from smdp_launch.scaling.question import (
    ENGINE,
    RING,
    SCHEDULES,
    SMDISTRIBUTED,
    Method,
    Question,
    Setting,
    costs_of,
    exchange,
)
from smdp_launch.scaling.verdict import Point, Step, Stop, definition, marginals, point, stop
from smdp_launch.scaling.workload import Bucket, Workload, even_buckets
from tests.conftest import Command, write_job
from tests.launcher.planning.scaling import DEFAULTS, P3DN, SMALL, spec_of, study
from tests.support.json_documents import the_document

# -- Questions to the model ------------------------------------------------------------------------------------


def test_job_and_flags_give_expected_questions(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "engine_options: {piece_kib: 512, operation_timeout_s: 10}\n")
    found = inputs(
        spec,
        Flags(hosts=(2,), step_s={None: 0.3}, gradient_bytes=2_000_001, instance_types=(P3DN,), bucket_mib=1),
    )
    engine, smdistributed, ring = (one.text() for one in study(found).questions())
    assert engine == (
        "hosts 2\nranks_per_host 8\nschedule engine\ndtype float32\n"
        "cost cores 48.0\ncost link_rate 12500000000.0\n"
        "option SMDP_PIECE_KIB 512\n"
        "bucket 1048576 0.104857548\nbucket 951432 0.2\n"
    )
    assert smdistributed == (
        "hosts 2\nranks_per_host 8\nschedule engine\ndtype float32\n"
        "cost copy_byte 0.0\ncost cores 48.0\ncost fold_byte 1.6666666666666667e-11\ncost link_rate 12125000000.0\n"
        "cost receive_byte 0.0\ncost send_byte 0.0\ncost wire_overhead 1.0\n"
        "option SMDP_PIECE_KIB 512\n"
        "bucket 1048576 0.104857548\nbucket 951432 0.2\n"
    )
    assert ring == (
        "hosts 2\nranks_per_host 8\nschedule ring\ndtype float32\n"
        "cost link_rate 10000000000.0\ncost ring_local_rate 115000000000.0\ncost wire_overhead 1.0\n"
        "bucket 951432 0.0\nbucket 1048576 0.0\n"
    )


def test_option_flags_override_job_file(tmp_path: Path) -> None:
    more = "engine_options: {piece_kib: 512}\nenvironment: {SMDP_COPY_THREADS: '4', OTHER: '1'}\n"
    options = Flags(step_s={None: 0.3}, parameters=1000, options={"SMDP_PIECE_KIB": "64"})
    found = inputs(spec_of(tmp_path, more), options)
    assert found.workload.options == {"SMDP_PIECE_KIB": "64", "SMDP_COPY_THREADS": "4"}
    origins = {one.value: one.origin.value for one in found.assumptions if one.name == "engine option"}
    assert origins == {"SMDP_COPY_THREADS=4": "job file", "SMDP_PIECE_KIB=64": "flag"}


def test_cost_of_schedule_overrides_cost_of_all_and_file() -> None:
    found = gpu_instance(P3DN)
    setting = Setting(
        DEFAULTS,
        file={"copy_byte": 1e-10, "fold_byte": 9e-11, "link_rate": 1.0, "cores_are_shared": 1.0},
        everywhere={"copy_byte": 5e-11, "wake": 1e-6},
        of_schedule={RING: {"wake": 2e-6}},
    )
    engine = costs_of(ENGINE, found, 2, setting)
    assert engine == {"link_rate": 12.5e9, "cores": 48.0, "fold_byte": 9e-11, "copy_byte": 5e-11, "wake": 1e-6}
    assert costs_of(RING, found, 2, setting)["wake"] == 2e-6
    smdistributed = costs_of(SMDISTRIBUTED, found, 2, setting)
    assert (smdistributed["copy_byte"], smdistributed["fold_byte"]) == (5e-11, pytest.approx(1e-11))


def test_model_with_copy_threads_gets_engine_default() -> None:
    found = gpu_instance(P3DN)
    knowing = Setting({**DEFAULTS, "hand_over": 1e-6, "memory_rate": 0.0})
    asked = exchange(workload(0.3, 1 << 20), found, ENGINE, 2, knowing).question
    assert (asked.options, asked.costs["memory_rate"]) == ({"SMDP_COPY_THREADS": "4"}, 110e9)
    chosen = replace(workload(0.3, 1 << 20), options={"SMDP_COPY_THREADS": "1"})
    assert exchange(chosen, found, ENGINE, 2, knowing).question.options == {"SMDP_COPY_THREADS": "1"}
    assert exchange(chosen, found, RING, 2, knowing).question.options == {}
    none = replace(workload(0.3, 1 << 20), options={"SMDP_COPY_THREADS": "0"})
    assert "memory_rate" not in exchange(none, found, ENGINE, 2, knowing).question.costs


def test_engine_has_one_of_several_interfaces() -> None:
    type_ = gpu_instance("ml.p4d.24xlarge")
    assert costs_of(ENGINE, type_, 2, Setting(DEFAULTS))["link_rate"] == 100e9 / 8
    assert costs_of(SMDISTRIBUTED, type_, 2, Setting(DEFAULTS))["link_rate"] == 400e9 / 8 * 0.97


def test_type_without_efa_has_kernel_cost_per_byte() -> None:
    costs = costs_of(SMDISTRIBUTED, gpu_instance("ml.p3.16xlarge"), 2, Setting(DEFAULTS))
    assert costs["link_rate"] == 25e9 / 8
    assert {"send_byte", "receive_byte", "wire_overhead"} & set(costs) == set()


def test_every_type_has_rates_with_source() -> None:
    for one in instances():
        assert 0 < ring_rate(one, 64).bytes_per_second <= ring_rate(one, 1).bytes_per_second
        assert ring_rate(one, 2).source
        assert rate_within_host(one).bytes_per_second > 1e9
        assert (efa_rate(one) is None) == (one.efa_interfaces == 0)


def test_buckets_have_all_bytes_and_become_ready_in_order() -> None:
    found = even_buckets(60 << 20, 25 << 20)
    assert [one.bytes >> 20 for one in found] == [1, 25, 25, 9]
    assert [one.ready for one in found] == [1 / 60, 26 / 60, 51 / 60, 1]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (Flags(), "the time of a step is not known: add --step-time"),
        (Flags(step_s={None: 1}), "the size of the gradients is not known"),
        (Flags(step_s={P3DN: 1}, parameters=1), "add --step-time ml.p4d.24xlarge=SECONDS"),
        (Flags(step_s={None: 1}, gradient_bytes=1 << 40, bucket_mib=1), "too many buckets"),
    ],
)
def test_missing_input_names_the_flag(tmp_path: Path, flags: Flags, sentence: str) -> None:
    with pytest.raises(MissingInput, match=re.escape(sentence)):
        inputs(spec_of(tmp_path), flags)


def test_batch_comes_from_flag_model_or_job_file(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "batch: {global: 256}\n")

    def batch_and_source(**flags: Any) -> tuple[int | None, list[str]]:
        found = inputs(spec, Flags(**flags))
        return found.workload.batch, [one.source for one in found.assumptions if one.name == "batch"]

    assert batch_and_source(step_s={None: 1}, parameters=1) == (16, ["batch.global on 2 hosts"])
    assert batch_and_source(trace="mask-rcnn") == (4, ["13.14 images/s, 4 a step (NVIDIA, DGX-1 32G, PyTorch 19.02)"])
    assert batch_and_source(trace="mask-rcnn", batch=8) == (8, ["--batch"])


def test_step_of_other_gpu_gives_warning(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    both = (P3DN, "ml.p4d.24xlarge")
    (warning,) = inputs(spec, Flags(trace="mask-rcnn", instance_types=both)).warnings
    assert "the step of one V100 is used for ml.p4d.24xlarge too: add --step-time ml.p4d.24xlarge=SECONDS" in warning
    each = {P3DN: 0.3, "ml.p4d.24xlarge": 0.15}
    found = inputs(spec, Flags(step_s=each, parameters=1, instance_types=both))
    assert (found.warnings, found.workload.step_s) == ((), each)


# -- Measurements of a run -----------------------------------------------------------------------------------------


def run(steps: list[tuple[float, int]], **more: Any) -> RunEvents:
    return RunEvents("small-1", more.pop("instance_type", None), 2, steps, more.pop("exchanged", None))


def test_step_of_run_is_median_after_warm_up() -> None:
    lengths = [9.0, 8.0, *[1.0] * 7, 1.5, 30.0]
    at = [sum(lengths[:index]) for index in range(len(lengths) + 1)]
    found = measured(run([(moment, step) for step, moment in enumerate(at, 1)], exchanged=1200))
    assert found is not None
    assert (found.seconds, found.steps, found.warm_up, found.gradient_bytes) == (1.0, 9, 2, 100)


def test_restarted_run_has_no_step_across_restart() -> None:
    found = measured(run([(0, 1), (1, 2), (2, 3), (100, 2), (101, 3), (102, 4), (104, 6)]))
    assert found is not None
    assert found.seconds == 1.0


@pytest.mark.parametrize("steps", [[], [(0.0, 1)], [(0.0, 1), (1.0, 2)], [(5.0, 3), (4.0, 4), (3.0, 5)]])
def test_run_with_too_few_steps_gives_no_measurement(steps: list[tuple[float, int]]) -> None:
    assert measured(run(steps)) is None


def test_step_without_number_is_ignored_and_without_time_uses_time_of_line() -> None:
    assert step_of({"step": True, "time": 1.0}, 2.0) is None
    assert step_of({"step": 3, "time": "nan"}, 2.0) == (2.0, 3)


def test_step_measured_on_cpus_or_with_exchange_gives_warning(tmp_path: Path) -> None:
    def found(instance_type: str | None) -> Inputs:
        events = run([(0, 1), (1, 2), (2, 3)], instance_type=instance_type, exchanged=300)
        return inputs(spec_of(tmp_path), Flags(), Measured(events, 1.0, 2, 0, 100))

    local, aws = found(None), found("ml.p4d.24xlarge")
    assert "was measured on local CPUs, so it is not valid for GPUs" in local.warnings[0]
    assert aws.warnings == ("the step of small-1 includes its exchange, so the modelled steps are too long",)
    (step,) = [one for one in aws.assumptions if one.name == "step"]
    assert (step.origin.value, step.source) == ("run", "small-1 on ml.p4d.24xlarge, 2 ranks: median of 2 steps")


STEPS = """\
import json, os, time
for step in range(1, 8):
    time.sleep(0.02)
    event = {"smdp_event": 1, "event": "step", "time": 100 + 0.25 * step, "rank": 0, "step": step, "steps": 7}
    print(json.dumps(event), flush=True)
event = {"smdp_event": 1, "event": "engine", "time": 102, "rank": 0, "seconds": 1, "operations": 7, "bytes": 7000000}
os.write(int(os.environ["SMDP_EVENT_PIPE"].split(":")[0]), json.dumps(event).encode() + b"\\n")
"""


def test_last_run_of_job_gives_step_and_bytes(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, script=STEPS)
    ran = smdp_launch("launch", "--local", "--hosts", "1", "--workers-per-host", "1")
    assert ran.returncode == ExitCode.OK, ran.stderr
    for named in ([], ["--from", "small-"]):
        ran = smdp_launch("scale", "--hosts", "1,2", "--json", *named)
        document = the_document(ran, "scale")
        assert document["instance_types"][0]["compute_step_s"] == 0.25
        assert document["workload"]["gradient_bytes"] == 1_000_000
        assert "is not valid for GPUs" in document["warnings"][0]
        assert {one["origin"] for one in document["assumptions"] if one["name"] in ("step", "gradients")} == {"run"}


# -- Results from the answers --------------------------------------------------------------------------------------


def points(*efficiencies: float) -> list[Point]:
    counts = [1, 2, 4, 8]
    return [Point(n, 8 * n, 1 / e, e, 0, None, None, None, True) for n, e in zip(counts, efficiencies, strict=False)]


def test_step_includes_exchange_beyond_backward_pass() -> None:
    step = Step(0.3, 2 / 3, 10, 24_000, 36.0)
    hidden = point(step, 2, 8, 0.2, every_bucket=True)
    assert (hidden.step_s, hidden.efficiency) == (pytest.approx(0.3), pytest.approx(1))
    shown = point(step, 2, 8, 0.5, every_bucket=True)
    assert (shown.step_s, shown.efficiency) == (pytest.approx(0.6), pytest.approx(0.5))
    assert shown.samples_per_s == pytest.approx(160 / 0.6)
    assert (shown.epoch_s, shown.usd) == (pytest.approx(90), pytest.approx(2 * 36 * 90 / 3600))


def test_added_hosts_below_half_of_their_work_do_not_pay() -> None:
    found = points(1.0, 0.9, 0.8, 0.6)
    assert marginals(found) == pytest.approx([1.0, 0.8, 0.7, 0.4])
    assert stop(found) == Stop(4, 8, pytest.approx(0.4))
    assert stop(found, 0.3) == Stop(8, None, pytest.approx(0.4))
    assert stop(points(0.4, 0.3)) == Stop(0, 1, pytest.approx(0.4))
    assert "less than 50 % of the work" in definition(0.5)
    assert "more than 2 times" in definition(0.5)


@pytest.fixture(scope="module")
def program() -> Path:
    return find_program()


def ask(program: Path, *questions: Question) -> list[tuple[float, ...]]:
    known = ask_all(program, questions, timeout=250)
    return [known[one.text()] for one in questions]


def workload(step_s: float, *sizes: int) -> Workload:
    total = sum(sizes)
    ready = [sum(sizes[: index + 1]) / total for index in range(len(sizes))]
    return Workload({P3DN: step_s}, tuple(Bucket(size, at) for size, at in zip(sizes, ready, strict=True)))


def test_one_bucket_of_each_size_equals_ring_of_all_buckets(program: Path) -> None:
    work = workload(0.003, *[1 << 20, 4 << 20, 2 << 20] * 2)
    found = exchange(work, gpu_instance(P3DN), RING, 2, Setting(default_costs(program)))
    assert found.method is Method.EVERY_SIZE
    every = Question(2, 8, RING, "float32", found.ready, found.question.costs, {})
    asked, whole = ask(program, found.question, every)
    assert found.end_s(asked) == pytest.approx(max(whole), rel=1e-6)


@pytest.mark.parametrize("schedule", [ENGINE, SMDISTRIBUTED])
def test_one_bucket_approximates_full_pipeline(program: Path, schedule: str) -> None:
    work = workload(0.001, *[25 << 20] * 4)
    setting = Setting(default_costs(program))
    short, whole = (
        exchange(work, gpu_instance(P3DN), schedule, 4, setting, method=one)
        for one in (Method.ONE_BUCKET, Method.EVERY_BUCKET)
    )
    asked = ask(program, short.question, whole.question)
    assert short.end_s(asked[0]) == pytest.approx(whole.end_s(asked[1]), rel=0.15)


def test_exchange_is_not_faster_than_link_and_answers_repeat(program: Path) -> None:
    size, hosts = 8 << 20, 2
    setting = Setting(default_costs(program))
    asked = [exchange(workload(0.001, size), gpu_instance(P3DN), one, hosts, setting) for one in SCHEDULES]
    answers = ask(program, *(one.question for one in asked))
    for one, done in zip(asked, answers, strict=True):
        rate = one.question.costs["link_rate"]
        assert one.end_s(done) >= 2 * (hosts - 1) / hosts * size / rate
    assert ask(program, *(one.question for one in asked)) == answers


def test_slower_link_gives_longer_step_and_more_hosts_lower_efficiency(smdp_launch: Command, job_folder: Path) -> None:
    def efficiencies(*more: str) -> dict[str, list[float]]:
        document = the_document(smdp_launch("scale", *SMALL, "--json", *more), "scale")
        (one,) = document["instance_types"]
        return {each["schedule"]: [at["efficiency"] for at in each["points"]] for each in one["schedules"]}

    fast, slow = efficiencies(), efficiencies("--cost", "link_rate=1e8")
    for name in SCHEDULES:
        assert all(a > b for a, b in zip(fast[name][1:], slow[name][1:], strict=True))
        assert slow[name] == sorted(slow[name], reverse=True)
    one = efficiencies("--cost", "ring.link_rate=1e8")
    assert (one[RING], one[ENGINE]) == (slow[RING], fast[ENGINE])
