"""The command `scale`: its output as text, SVG and JSON, and its errors."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.errors import ExitCode
from smdp_launch.scaling import parsing
from smdp_launch.scaling.inputs import Flags, inputs
from smdp_launch.scaling.program import ProgramMissing, default_costs
from smdp_launch.scaling.question import (
    ENGINE,
    SCHEDULES,
    Setting,
    cost_problem,
)
from smdp_launch.scaling.study import Price, Study
from smdp_launch.scaling.verdict import definition
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, write_job
from tests.launcher.planning.scaling import DEFAULTS, ON_CPUS, P3DN, PRICES, SMALL, spec_of
from tests.support.json_documents import the_document, validator
from tests.support.terminal import on_a_terminal
from tests.support.waiting import wait_for

# -- Output --------------------------------------------------------------------------------------------------------


def test_output_has_table_plot_verdict_and_assumptions(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "prices.yaml").write_text(PRICES)
    ran = smdp_launch("scale", *SMALL, "--batch", "4", "--samples", "1000", "--prices", "prices.yaml")
    assert (ran.returncode, "Traceback" in ran.stderr) == (ExitCode.OK, False)
    lines = ran.stdout.splitlines()
    assert lines[0] == f"{P3DN}: 8 x V100 a host, 10 USD an hour each; compute 20 ms a step"
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


def test_without_prices_one_line_explains_how_to_set_them(smdp_launch: Command) -> None:
    ran = smdp_launch("scale", *SMALL)
    assert "USD" not in ran.stdout
    assert "no costs: name a table of prices with --prices FILE or `budget: {prices: FILE}`" in ran.stdout


def test_prices_of_job_file_are_used(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "prices.yaml").write_text(PRICES)
    write_job(job_folder, f"{JOB}budget: {{prices: prices.yaml}}\nbatch: {{per_gpu: 4}}\n")
    document = the_document(smdp_launch("scale", *SMALL, "--samples", "1000", "--json"), "scale")
    (one,) = document["instance_types"]
    for each in one["schedules"]:
        for at in each["points"]:
            assert at["usd"] == pytest.approx(at["hosts"] * 10 * at["epoch_s"] / 3600)


@pytest.mark.parametrize("columns", [80, 140])
def test_output_fits_terminal_width(job_folder: Path, columns: int) -> None:
    (job_folder / "prices.yaml").write_text(PRICES)
    shown = on_a_terminal(
        job_folder,
        ["scale", *SMALL, "--batch", "64", "--samples", "7000000", "--prices", "prices.yaml"],
        columns,
        NO_COLOR="1",
    )
    # On a slow machine the line shows the progress first, so only the text after the last erasure counts.
    left = (line.rpartition("\x1b[2K")[2] for line in shown.split("\n"))
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in left]
    # A command is never wrapped, so that it can be copied.
    assert max(len(line) for line in lines if not line.startswith("next: ")) <= columns
    heads = [line for line in lines if line.split()[:2] == ["hosts", "ranks"]]
    assert len(heads) == 1
    assert heads[0].count("efficiency") == (1 if columns == 80 else 3)
    assert f"{'100 %':>5} |" in "\n".join(lines)


def test_svg_names_every_point_and_loads_nothing(smdp_launch: Command, job_folder: Path) -> None:
    ran = smdp_launch("scale", *SMALL, "--instance-type", "ml.p4d.24xlarge", "--svg", "scale.svg")
    assert "wrote scale.svg" in ran.stderr
    text = (job_folder / "scale.svg").read_text()
    root = ElementTree.fromstring(text)
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 2 * 3 * 3
    assert any(one.startswith("smdistributed-like, 4 hosts: ") for one in titles)
    assert "prefers-color-scheme:dark" in text
    # A program that renders only this file does not know CSS variables, and may not follow links.
    assert [one for one in ("var(", "url(", "href", "<script") if one in text] == []


def test_json_of_several_types_matches_schema(smdp_launch: Command) -> None:
    ran = smdp_launch("scale", *SMALL, "--instance-type", "ml.p3.16xlarge", "--samples", "10", "--batch", "2", "--json")
    document = the_document(ran, "scale")
    assert [one["instance_type"] for one in document["instance_types"]] == [P3DN, "ml.p3.16xlarge"]
    validator("scale").validate(document)


# -- Errors --------------------------------------------------------------------------------------------------------

BASE = ["--step-time", "0.02", "--parameters", "1K", "--hosts", "2"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--hosts", "0"], ExitCode.USAGE, "0 hosts are out of range: write 1 to 4096"),
        (["--hosts", "1,,2"], ExitCode.USAGE, "'' is not a number of hosts"),
        (["--hosts", "-1"], ExitCode.USAGE, "'-1' is not a number of hosts"),
        (["--step-time", "nan"], ExitCode.USAGE, "'nan' is not a number, 0 or more"),
        (["--step-time", "-1"], ExitCode.USAGE, "'-1' is not a number, 0 or more"),
        (["--step-time", "0"], ExitCode.USAGE, "'0' is not the time of a step"),
        (["--step-time", "1", "--step-time", "2"], ExitCode.USAGE, "the step time of every type is given twice"),
        (["--parameters", "many"], ExitCode.USAGE, "'many' is not a number of parameters"),
        (["--gradient-bytes", "0"], ExitCode.USAGE, "'0' is out of range: write 1 to 1099511627776"),
        (["--instance-type", "ml.m5.large"], ExitCode.USAGE, "the catalog knows no GPUs of ml.m5.large"),
        (["--instance-type", "ml.p4d.24xlrge"], ExitCode.USAGE, "did you mean ml.p4d.24xlarge?"),
        (["--trace", "bert"], ExitCode.USAGE, "'bert' is no known model: one of bert-large, mask-rcnn"),
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
        ([*BASE, "--cost", "cores=1e9"], ExitCode.USAGE, "cores is 1e+09, but must be from 1 to 4096"),
        ([*BASE, "--option", "SMDP_NO=1"], ExitCode.USAGE, "SMDP_NO: no such option"),
        ([*BASE, "--option", "piece=1"], ExitCode.USAGE, "'piece=1' is not NAME=VALUE of an engine option"),
        ([*BASE, "--costs", "nowhere"], ExitCode.ENVIRONMENT, "nowhere cannot be read: No such file or directory"),
        ([*BASE, "--costs", "job.yaml"], ExitCode.USAGE, "--costs job.yaml: it has no line such as"),
        ([*BASE, "--prices", "nowhere.yaml"], ExitCode.ENVIRONMENT, "nowhere.yaml cannot be used"),
        ([*BASE, "--svg", "nowhere/a.svg"], ExitCode.ENVIRONMENT, "nowhere/a.svg cannot be written"),
        ([*BASE, "--from", "nothing"], ExitCode.REFUSED, "no run nothing was launched from this folder"),
        (["nowhere.yaml"], ExitCode.JOB_FILE_REFUSED, "nowhere.yaml"),
        (["--hosts", "1000", "--trace", "bert-large", "--timeout", "1"], ExitCode.ENVIRONMENT, "1000 hosts within 1 s"),
    ],
)
def test_invalid_value_gives_one_message_and_exit_code(
    smdp_launch: Command, arguments: list[str], code: ExitCode, sentence: str
) -> None:
    ran = smdp_launch("scale", *arguments)
    assert ran.returncode == code, ran.stderr
    assert sentence in ran.stderr
    assert (ran.stdout, "Traceback" in ran.stderr) == ("", False)


def test_job_on_cpus_needs_a_type_with_gpus(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder, ON_CPUS)
    ran = smdp_launch("scale", *BASE)
    assert (ran.returncode, ran.stdout) == (ExitCode.USAGE, "")
    assert "compute.instance_type is ml.c5.xlarge, and the catalog knows no GPUs of it: add --inst" in ran.stderr
    assert smdp_launch("scale", *SMALL).returncode == ExitCode.OK


def test_costs_are_read_from_calibrate_output(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "written.json").write_text('{"machine": "m", "costs": {"copy_byte": 1e-10, "link_rate": 1000}}')
    (job_folder / "printed.txt").write_text("cost copy_byte 1e-10\ncost link_rate 1000\n| 1x8 | x | 1 |\n")
    documents = [
        the_document(smdp_launch("scale", *SMALL, "--costs", file, "--json"), "scale")
        for file in ("printed.txt", "written.json")
    ]
    assert documents[0]["instance_types"] == documents[1]["instance_types"]
    (engine,) = [one for one in documents[0]["assumptions"] if one["name"] == "engine"]
    assert "copy_byte 1e-10" in engine["value"]
    assert engine["source"].startswith("--costs printed.txt, without ")


def test_missing_program_gives_install_command(job_folder: Path) -> None:
    # -S: without the packages beside this Python, but for those that the launcher needs.
    paths = [one for one in sys.path if one]
    code = (
        f"import sys; sys.path[1:] = {paths!r}; import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'smdp_engine' else real(name, *a)\n"
        f"sys.argv = ['smdp-launch', 'scale', *{BASE!r}]; from smdp_launch.cli import main; main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=job_folder, capture_output=True, text=True, check=False)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr.startswith("smdp-launch: the engine is not installed: the cost model is part of the engine;")
    assert re.search(r"install it with \S+ -m pip install .* --no-build-isolation \S+/native$", ran.stderr.strip())


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 3\n", "no program"])
def test_program_that_does_not_run_is_reported(tmp_path: Path, text: str) -> None:
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
    """The words, each with a zero byte after it; empty if the process has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_the_model(job_folder: Path, number: signal.Signals) -> None:
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
def test_any_list_of_hosts_is_sorted_without_duplicates(counts: list[int]) -> None:
    assert parsing.host_counts(" , ".join(map(str, counts))) == tuple(sorted(set(counts)))


@given(st.text(max_size=12))
def test_any_text_is_parsed_or_refused_with_message(text: str) -> None:
    for read in (parsing.host_counts, parsing.gradient_bytes, parsing.parameters, parsing.seconds, parsing.share):
        try:
            found = read(text)
        except ValueError as error:
            assert str(error)
        else:
            assert found if isinstance(found, tuple) else found > 0


def test_amounts_are_parsed_with_units() -> None:
    assert [parsing.gradient_bytes(one) for one in ("670MB", "640 MiB", "1.5GiB", "12")] == [
        670_000_000,
        640 << 20,
        3 << 29,
        12,
    ]
    assert [parsing.parameters(one) for one in ("335M", "1.3B", "7000")] == [335_000_000, 1_300_000_000, 7000]
    assert (parsing.share("2/3"), parsing.share("0.5")) == (2 / 3, 0.5)


def test_costs_outside_bounds_are_refused() -> None:
    assert cost_problem("copy_byte", 0) is None
    assert cost_problem("copy_byte", 1e300) == "copy_byte is 1e+300, but must be from 0 to 60"
    assert cost_problem("ring_slice_bytes", 1) is not None


def test_report_has_prices_with_source(tmp_path: Path) -> None:
    found = inputs(spec_of(tmp_path), Flags(hosts=(1,), step_s={None: 1}, parameters=8, batch=1, samples=80))
    made = Study("job.yaml", found, Setting(DEFAULTS), 0.5, {"ml.p4d.24xlarge": Price(36.0, "ours, 2026-11-01")})
    report = made.report({one.text(): [0.1] * len(one.buckets) for one in made.questions()})
    (price,) = [one for one in report.assumptions if one.name == "price"]
    assert (price.value, price.origin.value, price.source) == (
        "ml.p4d.24xlarge: 36 USD per hour",
        "price table",
        "ours, 2026-11-01",
    )
    assert json.loads(json.dumps(report.to_json()))["instance_types"][0]["hourly_usd"] == 36.0
    assert report.hosts[0].points[ENGINE][0].usd == pytest.approx(36 * 10 / 3600)


def test_unreadable_run_is_skipped_with_warning(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / ".smdp").mkdir()
    gone = {"job": "small-1", "where": "local", "job_file": "job.yaml", "plan_hash": "", "time": "", "state": "nowhere"}
    (job_folder / ".smdp" / "history.jsonl").write_text(json.dumps(gone) + "\n")
    ran = smdp_launch("scale")
    assert ran.returncode == ExitCode.USAGE
    assert ran.stderr.startswith("small-1 is skipped: the local cloud of the job no longer exists: there is no folder ")
    assert "the time of a step is not known" in ran.stderr
