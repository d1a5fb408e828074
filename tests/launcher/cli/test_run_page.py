"""The report of a run: one well-formed page of bounded size, with every text escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import pytest

from smdp_launch.cli.render.job.report import require_writable, write_report
from smdp_launch.cli.render.job.verdict import verdict_rows
from smdp_launch.cli.render.plots.page import verdict
from smdp_launch.cli.render.plots.run_page import html_page
from smdp_launch.errors import EnvironmentProblem
from smdp_launch.jobs.run import Run
from smdp_launch.run_metrics.run import RunMetrics
from tests.support.numbers.run_events import HANG, metrics_of, run_events
from tests.support.numbers.synthetic_runs import BEGAN, synthetic_metrics, synthetic_run

HOSTILE = "</svg><script>alert(1)</script>\"'&\x1b[2J\u202e"


def page_of(run: Run) -> tuple[str, ElementTree.Element]:
    page = html_page(run, verdict_rows(run.metrics), datetime(2026, 11, 21, tzinfo=timezone.utc))
    return page, ElementTree.fromstring(page.partition("\n")[2])


def headings(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter("h2")]


def test_page_has_every_section_of_a_measured_run() -> None:
    page, root = page_of(synthetic_run(synthetic_metrics()))
    sections = ["Summary", "What limits the speed", "Metrics", "Speed", "Where the time went", "Timeline", "Hosts"]
    assert headings(root) == [*sections, "Checkpoints", "Events"]
    assert "310 steps, 1,280 samples/s, 10 steps/s" in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert [one.tag for one in root.iter() if one.tag in ("script", "link", "img", "iframe", "object")] == []
    assert re.findall(r"(?:src|href|url)\s*[=(]", page) == []
    drawn = list(root.iter("{http://www.w3.org/2000/svg}svg"))
    assert len(drawn) == 2 + 2 + 1 + 1 + 4  # metrics, speed, shares, timeline, hosts and a channel


def test_commands_in_sentences_are_code() -> None:
    advice = ("do first", "use `smdp-launch size`, not `<b>`")
    run, shown = synthetic_run(synthetic_metrics()), "use <code>smdp-launch size</code>, not <code>&lt;b&gt;</code>"
    assert f"<dd>{shown}</dd>" in html_page(run, [advice], datetime(2026, 11, 21, tzinfo=timezone.utc))
    assert f"</strong>{shown}</p>" in verdict("failed", "FAIL", advice[1])
    page, root = page_of(run)
    assert [one.text for one in root.iter("code")] == ["smdp-launch size"]
    assert "`" not in page


def test_bars_of_a_rank_have_the_shares_of_its_time() -> None:
    page, _ = page_of(synthetic_run(synthetic_metrics()))
    assert "<title>rank 0: input 31.0 %</title>" in page
    assert "<title>rank 3: input 51.0 %</title>" in page
    assert "<title>all workers: input 36.0 %</title>" in page


def test_texts_of_the_job_are_escaped() -> None:
    metrics = synthetic_metrics(steps=20, windows=4)
    metrics.add("step", {"step": 20, HOSTILE: 1.0}, "algo-1", 0, BEGAN.timestamp() + 63)
    metrics.add("worker_exit", {"rank": HOSTILE, "error": HOSTILE}, HOSTILE, None, BEGAN.timestamp() + 64)
    fields = {"window": 1.0, "cpu_s": 1.0, f"channel_{HOSTILE}_bytes": 5}
    metrics.add("resources", fields, HOSTILE, None, BEGAN.timestamp() + 64)
    metrics.add("timing", {"window": 1.0, "steps": 1, "input_s": 1.0}, HOSTILE, 7, BEGAN.timestamp() + 64)
    failed = {"TrainingJobStatus": "Failed", "FailureReason": HOSTILE, "TrainingJobName": HOSTILE}
    page, root = page_of(synthetic_run(metrics, **failed))
    assert "<script" not in page
    assert list(root.iter("script")) == []
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", page)


@pytest.mark.parametrize(
    "value", [0, -1, 1e308, -1e308, 1e-300, float("nan"), float("inf"), True, "1e9", None, 2**80], ids=repr
)
def test_page_can_be_made_of_any_numbers(value: object) -> None:
    metrics = RunMetrics()
    at = BEGAN.timestamp()
    for second in range(3):
        metrics.add("step", {"step": second, "steps": 3, "loss": value}, "algo-1", 0, at + second)
        times = {"window": 1.0, "steps": value, "samples": value, "input_s": value, "load_s": value}
        metrics.add("timing", times, "algo-1", 0, at + second)
        levels = {"window": 1.0, "cpu_s": value, "cores": value, "memory_used": value, "memory_total": value}
        metrics.add("resources", levels, "algo-1", None, at + second)
    page_of(synthetic_run(metrics))


def test_page_of_a_job_without_events_says_so() -> None:
    page, root = page_of(synthetic_run(RunMetrics()))
    assert "The job reported no steps and no times." in page
    assert "Measurements" in headings(root)


def test_hang_is_the_verdict_and_an_event() -> None:
    page, _ = page_of(synthetic_run(metrics_of([*run_events(lambda _: {"forward": 0.1}), *HANG])))
    assert "The job hangs: no progress since 2026-09-21 14:14:10 UTC, rank 2 on algo-2 is in forward at load" in page
    doing = "rank 2 is in forward at load (data.py:14), rank 3 waits for rank 2 in all_reduce"
    row = ("110.0", "algo-2", "", "hang", f"what: reported; limit: 60.0; ranks: {doing}")
    assert f"<tr>{''.join(f'<td>{one}</td>' for one in row)}</tr>" in page


def test_price_of_a_type_that_is_not_selected_yet_is_the_highest_one() -> None:
    run = replace(synthetic_run(synthetic_metrics(steps=20, windows=4)), where="us-east-1", price=40.97)
    assert "USD at 40.97 USD an hour" in page_of(run)[0]
    pending = replace(run, description=replace(run.description, instance_type=None))
    assert "USD at most, if it gets the most expensive type, at 40.97 USD an hour" in page_of(pending)[0]


def test_page_of_a_log_that_was_not_read_to_its_end_says_so() -> None:
    run = synthetic_run(synthetic_metrics(steps=20, windows=4))
    text = "not read to its end, because the timeout came first: numbers may be missing"
    assert text not in page_of(run)[0]
    assert text in page_of(replace(run, has_all_lines=False))[0]


def test_page_of_a_large_run_is_small() -> None:
    """Of 8 hosts with 8 ranks: the series are bounded, and many ranks are grouped by host."""
    page, _ = page_of(synthetic_run(synthetic_metrics(8, 8, 800, 100), 8))
    assert len(page) < 3_000_000
    assert "<title>algo-8: input 33.5 %</title>" in page
    assert "8 of 64 ranks" in page


def test_report_is_written_or_refused_before_the_job_runs(tmp_path: Path) -> None:
    run = synthetic_run(synthetic_metrics(steps=20, windows=4))
    write_report(run, tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    require_writable(tmp_path / "run.html")
    with pytest.raises(EnvironmentProblem, match="does not exist or is not writable"):
        require_writable(tmp_path / "nowhere" / "run.html")
    with pytest.raises(EnvironmentProblem, match="is not a regular file"):
        require_writable(tmp_path)
