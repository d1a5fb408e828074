"""How a job scales: what the model is asked, what follows from its answers, and what a user and a program are told."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.catalog.exchange import efa_rate, rate_within_host, ring_rate
from smdp_launch.catalog.instances import instances
from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.scaling import parsing
from smdp_launch.scaling.inputs import Given, Inputs, NotKnown, gpu_instance, inputs
from smdp_launch.scaling.measured import Measured, RunEvents, measured, step_of
from smdp_launch.scaling.program import ProgramMissing, ask_all, default_costs, find_program
from smdp_launch.scaling.question import (
    ENGINE,
    RING,
    SCHEDULES,
    SMDISTRIBUTED,
    Method,
    Question,
    Setting,
    cost_problem,
    costs_of,
    exchange,
)
from smdp_launch.scaling.study import Price, Study
from smdp_launch.scaling.verdict import Point, Step, Stop, definition, marginals, point, stop
from smdp_launch.scaling.workload import Bucket, Workload, even_buckets
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, write_job
from tests.launcher.cli.test_json_documents import the_document, validator
from tests.support.terminal import on_a_terminal
from tests.support.waiting import wait_for

P3DN = "ml.p3dn.24xlarge"
PRICES = "date: 2026-11-01\nsource: an example\nprices: {us-east-1: {ml.p3dn.24xlarge: 10, ml.p4d.24xlarge: 12.5}}\n"
DEFAULTS = {"fold_byte": 1.5e-10, "copy_byte": 2e-10}
#: Small enough that a test asks the model in no time.
SMALL = ["--step-time", "0.02", "--parameters", "2M", "--instance-type", P3DN, "--hosts", "1,2,4"]


def spec_of(folder: Path, more: str = "") -> JobSpec:
    spec, _ = check_job(write_job(folder, JOB + more), environ={}).require()
    return spec


def study(found: Inputs, **more: Any) -> Study:
    return Study("job.yaml", found, Setting(DEFAULTS), 0.5, {}, **more)


# -- What the model is asked -----------------------------------------------------------------------------------


def test_a_job_and_flags_give_exactly_these_questions(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "engine_options: {piece_kib: 512, operation_timeout_s: 10}\n")
    found = inputs(
        spec,
        Given(hosts=(2,), step_s={None: 0.3}, gradient_bytes=2_000_001, instance_types=(P3DN,), bucket_mib=1),
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


def test_options_of_flags_go_before_those_of_the_job_file(tmp_path: Path) -> None:
    more = "engine_options: {piece_kib: 512}\nenvironment: {SMDP_COPY_THREADS: '4', OTHER: '1'}\n"
    given_ = Given(step_s={None: 0.3}, parameters=1000, options={"SMDP_PIECE_KIB": "64"})
    found = inputs(spec_of(tmp_path, more), given_)
    assert found.workload.options == {"SMDP_PIECE_KIB": "64", "SMDP_COPY_THREADS": "4"}
    told = {one.value: one.origin.value for one in found.assumptions if one.name == "engine option"}
    assert told == {"SMDP_COPY_THREADS=4": "job file", "SMDP_PIECE_KIB=64": "flag"}


def test_costs_of_a_schedule_go_before_those_of_all_and_those_before_a_files() -> None:
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


def test_a_model_with_copy_threads_is_asked_as_the_engine_would_decide() -> None:
    found = gpu_instance(P3DN)
    knowing = Setting({**DEFAULTS, "hand_over": 1e-6, "memory_rate": 0.0})
    asked = exchange(workload(0.3, 1 << 20), found, ENGINE, 2, knowing).question
    assert (asked.options, asked.costs["memory_rate"]) == ({"SMDP_COPY_THREADS": "4"}, 110e9)
    chosen = replace(workload(0.3, 1 << 20), options={"SMDP_COPY_THREADS": "1"})
    assert exchange(chosen, found, ENGINE, 2, knowing).question.options == {"SMDP_COPY_THREADS": "1"}
    assert exchange(chosen, found, RING, 2, knowing).question.options == {}
    none = replace(workload(0.3, 1 << 20), options={"SMDP_COPY_THREADS": "0"})
    assert "memory_rate" not in exchange(none, found, ENGINE, 2, knowing).question.costs


def test_a_type_without_efa_pays_the_kernel_for_each_byte() -> None:
    costs = costs_of(SMDISTRIBUTED, gpu_instance("ml.p3.16xlarge"), 2, Setting(DEFAULTS))
    assert costs["link_rate"] == 25e9 / 8
    assert {"send_byte", "receive_byte", "wire_overhead"} & set(costs) == set()


def test_every_type_has_its_rates_with_a_source() -> None:
    for one in instances():
        assert 0 < ring_rate(one, 64).bytes_per_second <= ring_rate(one, 1).bytes_per_second
        assert ring_rate(one, 2).source
        assert rate_within_host(one).bytes_per_second > 1e9
        assert (efa_rate(one) is None) == (one.efa_interfaces == 0)


def test_buckets_are_those_of_the_bytes_and_become_ready_in_turn() -> None:
    found = even_buckets(60 << 20, 25 << 20)
    assert [one.bytes >> 20 for one in found] == [1, 25, 25, 9]
    assert [one.ready for one in found] == [1 / 60, 26 / 60, 51 / 60, 1]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (Given(), "no run of this job says how long a step takes: give --step-time"),
        (Given(step_s={None: 1}), "how many bytes of gradients a step exchanges is not known"),
        (Given(step_s={P3DN: 1}, parameters=1), "add --step-time ml.p4d.24xlarge=SECONDS"),
        (Given(step_s={None: 1}, gradient_bytes=1 << 40, bucket_mib=1), "too many buckets"),
    ],
)
def test_what_is_not_known_is_asked_for(tmp_path: Path, flags: Given, sentence: str) -> None:
    with pytest.raises(NotKnown, match=re.escape(sentence)):
        inputs(spec_of(tmp_path), flags)


def test_the_batch_comes_from_flag_model_or_job_file_and_says_which(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "batch: {global: 256}\n")

    def told(**flags: Any) -> tuple[int | None, list[str]]:
        found = inputs(spec, Given(**flags))
        return found.workload.batch, [one.source for one in found.assumptions if one.name == "batch"]

    assert told(step_s={None: 1}, parameters=1) == (16, ["batch.global on 2 hosts"])
    assert told(trace="mask-rcnn") == (4, ["13.14 images/s, 4 a step (NVIDIA, DGX-1 32G, PyTorch 19.02)"])
    assert told(trace="mask-rcnn", batch=8) == (8, ["--batch"])


def test_a_step_of_another_gpu_is_warned_of(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    both = (P3DN, "ml.p4d.24xlarge")
    (warning,) = inputs(spec, Given(trace="mask-rcnn", instance_types=both)).warnings
    assert "the step of one V100 is taken for ml.p4d.24xlarge too: give --step-time ml.p4d.24xlarge=SECONDS" in warning
    each = {P3DN: 0.3, "ml.p4d.24xlarge": 0.15}
    found = inputs(spec, Given(step_s=each, parameters=1, instance_types=both))
    assert (found.warnings, found.workload.step_s) == ((), each)


# -- What a run says ---------------------------------------------------------------------------------------------


def run(steps: list[tuple[float, int]], **more: Any) -> RunEvents:
    return RunEvents("small-1", more.pop("instance_type", None), 2, steps, more.pop("exchanged", None))


def test_the_step_of_a_run_is_the_median_after_a_warm_up() -> None:
    lengths = [9.0, 8.0, *[1.0] * 7, 1.5, 30.0]
    at = [sum(lengths[:index]) for index in range(len(lengths) + 1)]
    found = measured(run([(moment, step) for step, moment in enumerate(at, 1)], exchanged=1200))
    assert found is not None
    assert (found.seconds, found.steps, found.warm_up, found.gradient_bytes) == (1.0, 9, 2, 100)


def test_a_run_that_began_again_has_no_step_across_its_gap() -> None:
    found = measured(run([(0, 1), (1, 2), (2, 3), (100, 2), (101, 3), (102, 4), (104, 6)]))
    assert found is not None
    assert found.seconds == 1.0


@pytest.mark.parametrize("steps", [[], [(0.0, 1)], [(0.0, 1), (1.0, 2)], [(5.0, 3), (4.0, 4), (3.0, 5)]])
def test_a_run_with_too_few_steps_says_nothing(steps: list[tuple[float, int]]) -> None:
    assert measured(run(steps)) is None


def test_a_step_without_a_number_is_passed_over_and_one_without_a_time_has_that_of_its_line() -> None:
    assert step_of({"step": True, "time": 1.0}, 2.0) is None
    assert step_of({"step": 3, "time": "nan"}, 2.0) == (2.0, 3)


def test_a_step_that_cpus_took_is_warned_of_and_one_of_aws_says_what_is_in_it(tmp_path: Path) -> None:
    def found(instance_type: str | None) -> Inputs:
        events = run([(0, 1), (1, 2), (2, 3)], instance_type=instance_type, exchanged=300)
        return inputs(spec_of(tmp_path), Given(), Measured(events, 1.0, 2, 0, 100))

    local, aws = found(None), found("ml.p4d.24xlarge")
    assert "was measured on CPUs of this machine: it says nothing about GPUs" in local.warnings[0]
    assert aws.warnings == (
        "the step of small-1 includes what the exchange of that run took, so that the modelled steps are too long",
    )
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


def test_the_last_run_of_the_job_gives_its_step_and_its_bytes(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, script=STEPS)
    ran = smdp_launch("launch", "--local", "--hosts", "1", "--workers-per-host", "1")
    assert ran.returncode == ExitCode.OK, ran.stderr
    for named in ([], ["--from", "small-"]):
        ran = smdp_launch("scale", "--hosts", "1,2", "--json", *named)
        document = the_document(ran, "scale")
        assert document["instance_types"][0]["compute_step_s"] == 0.25
        assert document["workload"]["gradient_bytes"] == 1_000_000
        assert "says nothing about GPUs" in document["warnings"][0]
        assert {one["origin"] for one in document["assumptions"] if one["name"] in ("step", "gradients")} == {"run"}


# -- What follows from the answers ---------------------------------------------------------------------------------


def points(*efficiencies: float) -> list[Point]:
    counts = [1, 2, 4, 8]
    return [Point(n, 8 * n, 1 / e, e, 0, None, None, None, True) for n, e in zip(counts, efficiencies, strict=False)]


def test_a_step_is_what_the_backward_pass_does_not_hide() -> None:
    step = Step(0.3, 2 / 3, 10, 24_000, 36.0)
    hidden = point(step, 2, 8, 0.2, every_bucket=True)
    assert (hidden.step_s, hidden.efficiency) == (pytest.approx(0.3), pytest.approx(1))
    shown = point(step, 2, 8, 0.5, every_bucket=True)
    assert (shown.step_s, shown.efficiency) == (pytest.approx(0.6), pytest.approx(0.5))
    assert shown.samples_per_s == pytest.approx(160 / 0.6)
    assert (shown.epoch_s, shown.usd) == (pytest.approx(90), pytest.approx(2 * 36 * 90 / 3600))


def test_hosts_stop_to_pay_where_the_added_ones_do_less_than_half_of_their_work() -> None:
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


def test_one_bucket_of_each_size_gives_the_ring_of_all_buckets(program: Path) -> None:
    work = workload(0.003, *[1 << 20, 4 << 20, 2 << 20] * 2)
    found = exchange(work, gpu_instance(P3DN), RING, 2, Setting(default_costs(program)))
    assert found.method is Method.EVERY_SIZE
    every = Question(2, 8, RING, "float32", found.ready, found.question.costs, {})
    asked, whole = ask(program, found.question, every)
    assert found.end_s(asked) == pytest.approx(max(whole), rel=1e-6)


@pytest.mark.parametrize("schedule", [ENGINE, SMDISTRIBUTED])
def test_one_bucket_stands_for_all_of_a_full_pipeline(program: Path, schedule: str) -> None:
    work = workload(0.001, *[25 << 20] * 4)
    setting = Setting(default_costs(program))
    short, whole = (
        exchange(work, gpu_instance(P3DN), schedule, 4, setting, method=one)
        for one in (Method.ONE_BUCKET, Method.EVERY_BUCKET)
    )
    asked = ask(program, short.question, whole.question)
    assert short.end_s(asked[0]) == pytest.approx(whole.end_s(asked[1]), rel=0.15)


def test_no_exchange_is_faster_than_its_link_and_answers_are_the_same_again(program: Path) -> None:
    size, hosts = 8 << 20, 2
    setting = Setting(default_costs(program))
    asked = [exchange(workload(0.001, size), gpu_instance(P3DN), one, hosts, setting) for one in SCHEDULES]
    answers = ask(program, *(one.question for one in asked))
    for one, done in zip(asked, answers, strict=True):
        rate = one.question.costs["link_rate"]
        assert one.end_s(done) >= 2 * (hosts - 1) / hosts * size / rate
    assert ask(program, *(one.question for one in asked)) == answers


def test_a_slower_link_makes_a_longer_step_and_more_hosts_a_lower_efficiency(
    smdp_launch: Command, job_folder: Path
) -> None:
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


# -- What a person and a program are told --------------------------------------------------------------------------


def test_the_table_the_plot_the_verdict_and_every_assumption_are_printed(
    smdp_launch: Command, job_folder: Path
) -> None:
    (job_folder / "prices.yaml").write_text(PRICES)
    ran = smdp_launch("scale", *SMALL, "--batch", "4", "--samples", "1000", "--prices", "prices.yaml")
    assert (ran.returncode, "Traceback" in ran.stderr) == (ExitCode.OK, False)
    lines = ran.stdout.splitlines()
    assert lines[0] == f"{P3DN}: 8 x V100 a host, 10 USD an hour each; a step alone 20 ms"
    head = ["hosts", "ranks", "schedule", "step", "ms", "efficiency", "samples/s", "epoch", "h", "USD/epoch"]
    assert lines[1].split() == head
    assert [line.split()[:3] for line in lines[2:11]] == [
        [str(hosts), str(8 * hosts), name] for hosts in (1, 2, 4) for name in SCHEDULES
    ]
    assert sum(line.startswith(f"{name}: pays up to ") for line in lines for name in SCHEDULES) == 3
    assert definition(0.5) in lines
    assert "no cost" not in ran.stdout
    assumed = ran.stdout.partition("\nAssumptions\n")[2]
    for name in ("step", "backward pass", "gradients", "batch", "epoch", "host", "EFA", "price", *SCHEDULES):
        assert re.search(rf"^{name}\s+.*\((flag|job file|run|catalogue|price table|default)\b", assumed, re.MULTILINE)
    assert lines[-1] == "Modelled, not measured."
    more = f"--set compute.instance_type={P3DN} --set compute.instance_count=4"
    assert ran.stderr.endswith(f"next: smdp-launch plan {more}\n")


def test_without_prices_one_line_says_how_to_give_them(smdp_launch: Command) -> None:
    ran = smdp_launch("scale", *SMALL)
    assert "USD" not in ran.stdout
    assert "no cost: name a table of prices with --prices FILE or `budget: {prices: FILE}`" in ran.stdout


def test_the_job_files_own_prices_are_used(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "prices.yaml").write_text(PRICES)
    write_job(job_folder, f"{JOB}budget: {{prices: prices.yaml}}\nbatch: {{per_gpu: 4}}\n")
    document = the_document(smdp_launch("scale", *SMALL, "--samples", "1000", "--json"), "scale")
    (one,) = document["instance_types"]
    for each in one["schedules"]:
        for at in each["points"]:
            assert at["usd"] == pytest.approx(at["hosts"] * 10 * at["epoch_s"] / 3600)


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_of_that_width_is_kept_to(job_folder: Path, columns: int) -> None:
    (job_folder / "prices.yaml").write_text(PRICES)
    shown = on_a_terminal(
        job_folder,
        ["scale", *SMALL, "--batch", "64", "--samples", "7000000", "--prices", "prices.yaml"],
        columns,
        NO_COLOR="1",
    )
    # Behind the last erasure of a line stands what is left on it: a slow machine shows the progress first.
    left = (line.rpartition("\x1b[2K")[2] for line in shown.split("\n"))
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in left]
    # A command is never broken, so that it can be copied.
    assert max(len(line) for line in lines if not line.startswith("next: ")) <= columns
    heads = [line for line in lines if line.split()[:2] == ["hosts", "ranks"]]
    assert len(heads) == 1
    assert heads[0].count("efficiency") == (1 if columns == 80 else 3)
    assert f"{'100 %':>5} |" in "\n".join(lines)


def test_the_drawing_is_xml_that_names_every_point_and_loads_nothing(smdp_launch: Command, job_folder: Path) -> None:
    ran = smdp_launch("scale", *SMALL, "--instance-type", "ml.p4d.24xlarge", "--svg", "scale.svg")
    assert "scale.svg written" in ran.stderr
    text = (job_folder / "scale.svg").read_text()
    root = ElementTree.fromstring(text)
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 2 * 3 * 3
    assert any(one.startswith("smdistributed-like, 4 hosts: ") for one in titles)
    assert "prefers-color-scheme:dark" in text
    # A program that draws the file alone knows no variables, and may not follow links.
    assert [one for one in ("var(", "url(", "href", "<script") if one in text] == []


def test_the_document_of_many_types_is_as_its_schema_says(smdp_launch: Command) -> None:
    ran = smdp_launch("scale", *SMALL, "--instance-type", "ml.p3.16xlarge", "--samples", "10", "--batch", "2", "--json")
    document = the_document(ran, "scale")
    assert [one["instance_type"] for one in document["instance_types"]] == [P3DN, "ml.p3.16xlarge"]
    validator("scale").validate(document)


# -- What can go wrong ----------------------------------------------------------------------------------------------

BASE = ["--step-time", "0.02", "--parameters", "1K", "--hosts", "2"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--hosts", "0"], ExitCode.USAGE, "0 hosts: from 1 to 4096 can be modelled"),
        (["--hosts", "1,,2"], ExitCode.USAGE, "'' is not a number of hosts"),
        (["--hosts", "-1"], ExitCode.USAGE, "'-1' is not a number of hosts"),
        (["--step-time", "nan"], ExitCode.USAGE, "'nan' is not a number, 0 or more"),
        (["--step-time", "-1"], ExitCode.USAGE, "'-1' is not a number, 0 or more"),
        (["--step-time", "0"], ExitCode.USAGE, "'0' is not the length of a step"),
        (["--step-time", "1", "--step-time", "2"], ExitCode.USAGE, "the step of every type is given twice"),
        (["--parameters", "many"], ExitCode.USAGE, "'many' is not a number of parameters"),
        (["--gradient-bytes", "0"], ExitCode.USAGE, "'0': from 1 to 1099511627776 can be modelled"),
        (["--instance-type", "ml.m5.large"], ExitCode.USAGE, "ml.m5.large is no type with GPUs"),
        (["--instance-type", "ml.p4d.24xlrge"], ExitCode.USAGE, "did you mean ml.p4d.24xlarge?"),
        (["--trace", "bert"], ExitCode.USAGE, "'bert' is no model that is known: one of bert-large, mask-rcnn"),
        (["--backward-share", "1.5"], ExitCode.USAGE, "'1.5' is not a share"),
        (["--worth", "0"], ExitCode.USAGE, "'0' is not a share"),
        (["--batch", "0"], ExitCode.USAGE, "--batch"),
        (
            [*BASE, "--cost", "copy_bite=1"],
            ExitCode.USAGE,
            "the model has no cost 'copy_bite': did you mean copy_byte?",
        ),
        ([*BASE, "--cost", "copy_byte=nan"], ExitCode.USAGE, "'nan' is not a number, 0 or more"),
        ([*BASE, "--cost", "rng.copy_byte=1"], ExitCode.USAGE, "'rng' is not a schedule"),
        ([*BASE, "--cost", "cores=1e9"], ExitCode.USAGE, "cores is 1e+09, and has to be from 1 to 4096"),
        ([*BASE, "--option", "SMDP_NO=1"], ExitCode.USAGE, "SMDP_NO: no such option"),
        ([*BASE, "--option", "piece=1"], ExitCode.USAGE, "'piece=1' is not NAME=VALUE of an engine option"),
        ([*BASE, "--costs", "nowhere"], ExitCode.ENVIRONMENT, "nowhere cannot be read: No such file or directory"),
        ([*BASE, "--costs", "job.yaml"], ExitCode.USAGE, "--costs job.yaml: it has no line such as"),
        ([*BASE, "--prices", "nowhere.yaml"], ExitCode.ENVIRONMENT, "nowhere.yaml cannot be used"),
        ([*BASE, "--svg", "nowhere/a.svg"], ExitCode.ENVIRONMENT, "nowhere/a.svg cannot be written"),
        ([*BASE, "--from", "nothing"], ExitCode.REFUSED, "there is no run nothing of this folder"),
        (["nowhere.yaml"], ExitCode.JOB_FILE_REFUSED, "nowhere.yaml"),
        (["--hosts", "1000", "--trace", "bert-large", "--timeout", "1"], ExitCode.ENVIRONMENT, "1000 hosts after 1 s"),
    ],
)
def test_a_bad_value_gives_one_message_and_its_exit_code(
    smdp_launch: Command, arguments: list[str], code: ExitCode, sentence: str
) -> None:
    ran = smdp_launch("scale", *arguments)
    assert ran.returncode == code, ran.stderr
    assert sentence in ran.stderr
    assert (ran.stdout, "Traceback" in ran.stderr) == ("", False)


def test_costs_come_from_what_calibrate_prints_or_writes(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "written.json").write_text('{"machine": "m", "costs": {"copy_byte": 1e-10, "link_rate": 1000}}')
    (job_folder / "printed.txt").write_text("cost copy_byte 1e-10\ncost link_rate 1000\n| 1x8 | x | 1 |\n")
    documents = [
        the_document(smdp_launch("scale", *SMALL, "--costs", file, "--json"), "scale")
        for file in ("printed.txt", "written.json")
    ]
    assert documents[0]["instance_types"] == documents[1]["instance_types"]
    (told,) = [one for one in documents[0]["assumptions"] if one["name"] == "engine"]
    assert "copy_byte 1e-10" in told["value"]
    assert told["source"].startswith("--costs printed.txt, without ")


def test_a_missing_program_is_told_with_the_command_that_installs_it(job_folder: Path) -> None:
    # -S: without the packages beside this Python, but for those that the launcher needs.
    paths = [one for one in sys.path if one]
    code = (
        f"import sys; sys.path[1:] = {paths!r}; import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'smdp_engine' else real(name, *a)\n"
        f"sys.argv = ['smdp-launch', 'scale', *{BASE!r}]; from smdp_launch.cli import main; main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=job_folder, capture_output=True, text=True, check=False)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr.startswith("smdp-launch: the engine is not installed: the model of cost comes with the engine;")
    assert re.search(r"install it with \S+ -m pip install .* --no-build-isolation \S+/native$", ran.stderr.strip())


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 3\n", "no program"])
def test_a_program_that_does_not_run_is_missing(tmp_path: Path, text: str) -> None:
    broken = tmp_path / "smdp_model"
    broken.write_text(text)
    broken.chmod(0o755)
    with pytest.raises(ProgramMissing, match="does not run"):
        default_costs(broken)


def children(process: int) -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            yield int(status.parent.name)


def command_of(process: int) -> bytes:
    """With a zero behind each word; empty of one that is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_model_too(job_folder: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [LAUNCHER, "scale", "--trace", "bert-large", "--hosts", "1000"],
        cwd=job_folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started: list[int] = []

    def runs() -> bool:
        started[:] = [one for one in children(process.pid) if command_of(one).endswith(b"smdp_model\0")]
        return bool(started)

    wait_for(runs, "the model runs")
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, "Traceback" in err) == (ExitCode.INTERRUPTED, False)
    assert [one for one in started if command_of(one)] == []


# -- Parsing ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, parsing.MOST_HOSTS), min_size=1, max_size=20))
def test_any_list_of_hosts_is_read_in_order_and_once(counts: list[int]) -> None:
    assert parsing.host_counts(" , ".join(map(str, counts))) == tuple(sorted(set(counts)))


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    for read in (parsing.host_counts, parsing.gradient_bytes, parsing.parameters, parsing.seconds, parsing.share):
        try:
            found = read(text)
        except ValueError as error:
            assert str(error)
        else:
            assert found if isinstance(found, tuple) else found > 0


def test_amounts_are_read_with_their_units() -> None:
    assert [parsing.gradient_bytes(one) for one in ("670MB", "640 MiB", "1.5GiB", "12")] == [
        670_000_000,
        640 << 20,
        3 << 29,
        12,
    ]
    assert [parsing.parameters(one) for one in ("335M", "1.3B", "7000")] == [335_000_000, 1_300_000_000, 7000]
    assert (parsing.share("2/3"), parsing.share("0.5")) == (2 / 3, 0.5)


def test_costs_have_bounds_beyond_which_the_model_is_of_no_use() -> None:
    assert cost_problem("copy_byte", 0) is None
    assert cost_problem("copy_byte", 1e300) == "copy_byte is 1e+300, and has to be from 0 to 60"
    assert cost_problem("ring_slice_bytes", 1) is not None


def test_prices_stand_in_the_report_with_their_source(tmp_path: Path) -> None:
    found = inputs(spec_of(tmp_path), Given(hosts=(1,), step_s={None: 1}, parameters=8, batch=1, samples=80))
    made = Study("job.yaml", found, Setting(DEFAULTS), 0.5, {"ml.p4d.24xlarge": Price(36.0, "ours, 2026-11-01")})
    report = made.report({one.text(): [0.1] * len(one.buckets) for one in made.questions()})
    (told,) = [one for one in report.assumptions if one.name == "price"]
    assert (told.value, told.origin.value, told.source) == (
        "ml.p4d.24xlarge: 36 USD an hour",
        "price table",
        "ours, 2026-11-01",
    )
    assert json.loads(json.dumps(report.to_json()))["instance_types"][0]["hourly_usd"] == 36.0
    assert report.hosts[0].points[ENGINE][0].usd == pytest.approx(36 * 10 / 3600)


def test_a_run_that_cannot_be_read_is_left_out_and_named(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / ".smdp").mkdir()
    gone = {"job": "small-1", "where": "local", "job_file": "job.yaml", "plan_hash": "", "time": "", "state": "nowhere"}
    (job_folder / ".smdp" / "history.jsonl").write_text(json.dumps(gone) + "\n")
    ran = smdp_launch("scale")
    assert ran.returncode == ExitCode.USAGE
    assert ran.stderr.startswith(
        "small-1 is left out: the local cloud that the job ran in is gone: there is no folder "
    )
    assert "no run of this job says how long a step takes" in ran.stderr
