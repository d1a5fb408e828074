"""The report of a rehearsal: its content, in the terminal, in a browser and in a plan."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from smdp_launch.cli.commands.rehearse.sharing import print_report
from smdp_launch.cli.render.plots.rehearsal_page import html_page
from smdp_launch.cli.render.plots.rehearsal_plot import LEFT, RIGHT, WIDTH
from smdp_launch.cli.render.plots.timeline import drawn, legend, ticks
from smdp_launch.cli.render.rehearse import print_verdict
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.follow import Ended, FollowEvent
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.localcloud.client.connect import private
from smdp_launch.rehearsals.rehearsal import REPORT_STEPS
from smdp_launch.rehearsals.report import Timeline, timeline
from smdp_launch.rehearsals.saved import replace_file, save_report, with_rehearsals
from tests.conftest import JOB, Command, write_job
from tests.support.jobs.rehearsed import COUNTS
from tests.support.json_documents import the_document, validator
from tests.support.rehearsals import KILL, NOT_APPLIED, SPOT, kill, planned, rehearsal_of, report_of, spot, status, step
from tests.support.terminal import on_a_terminal

KEPT = JOB + 'checkpoint: {s3: "s3://bucket/checkpoints"}\n'
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title><script>alert(1)</script>\" onload='x' ]]> <!-- & \x1b[2J \u202e \ud800 token=ghp_" + "a" * 36

#: Without the half of a surrogate pair, which standard output cannot encode.
PRINTABLE = HOSTILE.replace("\ud800", "")


@pytest.fixture
def here(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job with checkpoints."""
    write_job(job_folder, KEPT, COUNTS)
    monkeypatch.chdir(job_folder)
    return job_folder


def test_timeline_has_the_events_of_the_follower() -> None:
    found = timeline(rehearsal_of(SPOT, spot()))
    assert [[(one.name, one.start_ms, one.end_ms) for one in statuses] for statuses in found.attempts] == [
        [("Pending", 0, 889), ("Downloading", 889, 1566), ("Training", 1566, 4019), ("Interrupted", 4019, 6138)],
        [("Starting", 6138, 6143), ("Downloading", 6143, 6680), ("Training", 6680, 9317), ("Uploading", 9317, 9484),
         ("Completed", 9484, 9484)],
    ]  # fmt: skip
    assert found.attempts[0][-1].message == "its spot capacity was taken away"
    assert [(one.at_ms, one.text) for one in found.faults] == [(3837, "SIGTERM to all hosts, 120 s to exit")]
    assert [(one.at_ms, one.host) for one in found.restored] == [(6708, "algo-1"), (6708, "algo-2")]
    assert found.steps == tuple((2600 + 200 * one if one < 7 else 6600 + 200 * one, one) for one in range(1, 13))
    assert (found.length_ms, f"{found.began:%H:%M:%S}") == (9484, "10:07:35")


def test_long_run_has_a_sample_of_steps_and_the_last() -> None:
    steps = [step(number, 100 * number) for number in range(1, 5001)]
    found = timeline(rehearsal_of(KILL, [status("Training", 0), *steps])).steps
    assert 500 < len(found) <= 601
    assert set(found) <= {(100 * number, number) for number in range(1, 5001)}
    assert (found[0], found[-1]) == ((100, 1), (500_000, 5000))


def test_job_that_never_trained_applied_only_its_request(here: Path) -> None:
    events = [one for one in kill() if getattr(one, "status", "") != "Training"]
    assert [name for name, _ in report_of(KILL, events).applied] == ["request"]


def test_report_lists_exactly_the_applied_settings(here: Path) -> None:
    found = report_of(SPOT, spot())
    assert dict(found.applied) == {
        "request": "9 of its 10 fields as on AWS; changed for the local run: Environment",
        "script": "train.py --epochs 2",
        "entrypoint": "smdp-entrypoint",
        "channels": "train: files under data",
        "checkpoints": "/opt/ml/checkpoints is uploaded to the local cloud's S3 while the job trains",
        "max_run": "the job would have been stopped after 10 min of training",
    }
    assert found.not_applied == NOT_APPLIED
    adds = dict(found.adds)
    assert adds["instances"] == "2 x ml.p4d.24xlarge: 16 x A100, 40 GB each"
    assert adds["cost"] == "0.33 instance-hours at most"
    write_job(here, KEPT + "spot: {max_wait: 1200}\n", COUNTS)
    interrupted = dict(report_of(SPOT, spot()).applied)
    assert interrupted["spot"].startswith("one interruption") and interrupted["max_wait"].endswith(
        "after the job began"
    )
    write_job(here, JOB + "metrics: {loss: 'loss (.*)'}\nenvironment: {DEBUG: '1'}\n", COUNTS)
    more = dict(report_of(SPOT, spot()).applied)
    assert more["metrics"].startswith("loss: ") and more["environment"] == "DEBUG" and "checkpoints" not in more


def test_json_output_matches_the_schema(here: Path) -> None:
    for found in (report_of(SPOT, spot()), report_of(KILL, kill())):
        document = json.loads(json.dumps(found.to_json(), allow_nan=False))
        validator("rehearsal").validate(document)
        assert (document["rehearsal"], document["version"], document["passed"]) == (1, "1.2.3", True)


def test_script_without_steps_is_named_as_the_cause(here: Path) -> None:
    ended = Ended(outcome({"TrainingJobStatus": "Completed", "TrainingTimeInSeconds": 4}))
    found = report_of(KILL, [status("Pending", 0), status("Training", 1000), status("Completed", 5000), ended])
    assert found.verdict == "INCONCLUSIVE"
    assert found.reason == (
        "the fault was not injected: the job completed after 4 s of training, and its script reported no step"
        " (docs/reference/events.md); report steps, or set a time with --after SECONDS"
    )
    assert '<p class="verdict open"><strong>INCONCLUSIVE</strong>' in html_page(found)


def test_resumed_job_without_steps_is_inconclusive(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report_of(SPOT, (one for one in spot() if getattr(one, "name", "") != "step"))
    assert (found.verdict, found.reason[-len(REPORT_STEPS) :]) == ("INCONCLUSIVE", REPORT_STEPS)
    print_report(found, as_json=False, page=None)
    assert capsys.readouterr().err == f"next: {REPORT_STEPS}, then: smdp-launch rehearse spot\n"


def test_no_form_of_the_report_has_a_secret(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "ghp_" + "a" * 36
    found = report_of(KILL, kill(f"AlgorithmError: rank 3 : {secret} is no key"))
    print_verdict(found, as_json=False)
    for shown in (json.dumps(found.to_json()), html_page(found), capsys.readouterr().out):
        assert "ghp_" not in shown and "*" * 40 in shown


@pytest.mark.parametrize("columns", [30, 65, 105])
def test_length_of_bar_is_the_duration(columns: int) -> None:
    found = timeline(rehearsal_of(SPOT, spot()))
    rows = dict(drawn(found, columns))
    column = 9484 / columns
    assert all(len(line) <= columns for line in rows.values())
    for number, name, letter in ((1, "Training", "T"), (1, "Interrupted", "I"), (2, "Training", "T")):
        (one,) = (one for one in found.attempts[number - 1] if one.name == name)
        bar = rows[f"attempt {number}"]
        assert abs(bar.count(letter) * column - (one.end_ms - one.start_ms)) <= column
        assert abs(bar.index(letter) * column - one.start_ms) <= column
    assert rows["fault"].index("^") == int(3837 / column)
    for label in re.finditer(r"\d+", rows["seconds"]):
        assert label.start() == int(float(label[0]) * 1000 / column + 1e-9)
    assert dict(legend(found))["attempt 2"].startswith("S=Starting 0.0 s, D=Downloading 0.5 s, T=Training 2.6 s")


def test_ticks_are_round_and_few() -> None:
    for length in (0.004, 0.9, 1, 7, 9.484, 10, 59, 61, 3600, 86400.5):
        found = ticks(length, 8)
        assert 3 <= len(found) <= 9 and found[0] == 0 and found[-1] <= length
        assert re.fullmatch(r"[125]0*|0\.0*[125]", f"{found[1]:g}")


def test_empty_timeline_has_only_an_axis() -> None:
    nothing = timeline(rehearsal_of(KILL, ()))
    assert nothing.length_ms == 0
    assert [line for _, line in drawn(nothing, 60)] == ["0"]


@pytest.mark.parametrize("columns", [80, 140])
def test_report_fits_the_terminal(
    here: Path, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    print_verdict(
        report_of(KILL, kill(f"AlgorithmError: rank 3 on algo-2: {PRINTABLE}")), Path("kill.html"), as_json=False
    )
    lines = capsys.readouterr().out.splitlines()
    long = [line for line in lines if len(line) > columns]
    assert all(len(line.split()) <= 2 and re.search(r"/|[0-9a-f]{64}|\*{30}", line) for line in long), long
    assert not any("\x1b" in line for line in lines)
    titles = [line for line in lines if re.match(r"[A-Z]", line)]
    assert [one.partition(" (")[0] for one in titles[1:]] == [
        "Rehearsal", "On SageMaker", "Evidence", "Timeline", "Simulated locally", "Not simulated locally",
        "Differences on SageMaker", "HTML report",
    ]  # fmt: skip
    assert titles[0] == "PASS  the job ended by itself, and its FailureReason names rank 3"


def parsed(text: str) -> ElementTree.Element:
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text.partition("\n")[2])


def places(tree: ElementTree.Element, tag: str, *names: str) -> list[tuple[float, ...]]:
    return [tuple(float(one.attrib[name]) for name in names) for one in tree.iter(f"{SVG}{tag}")]


def milliseconds(found: Timeline, x: float) -> float:
    return (x - LEFT) * found.length_ms / (WIDTH - LEFT - RIGHT)


def test_plot_has_the_measured_values(here: Path) -> None:
    report = report_of(SPOT, spot())
    found, tree = report.timeline, parsed(html_page(report))
    close = found.length_ms / (WIDTH - LEFT - RIGHT) / 50  # x are rounded to a hundredth
    bands = [one for statuses in found.attempts for one in statuses if one.end_ms > one.start_ms]
    drawn_bands = [one for one in tree.iter(f"{SVG}rect") if list(one)]  # the legend's have no title
    assert len(drawn_bands) == len(bands) == 8
    for band, drawn_band in zip(bands, drawn_bands, strict=True):
        start, width = float(drawn_band.attrib["x"]), float(drawn_band.attrib["width"])
        assert milliseconds(found, start) == pytest.approx(band.start_ms, abs=close)
        assert milliseconds(found, start + width) == pytest.approx(band.end_ms, abs=2 * close)
        title = "".join(drawn_band.itertext())
        assert title == f"{band.name}: {band.seconds:.3f} s, from {band.start_ms / 1000:.3f} s"
    points = places(tree, "circle", "cx", "cy")
    assert [milliseconds(found, x) for x, _ in points] == pytest.approx([at for at, _ in found.steps], abs=close)
    heights = [(points[0][1] - y) / (points[0][1] - points[-1][1]) * 11 + 1 for _, y in points]
    assert heights == pytest.approx([number for _, number in found.steps], abs=0.01)
    lines = [one.attrib["points"].split() for one in tree.iter(f"{SVG}polyline")]
    assert [len(one) for one in lines] == [6, 6]  # no line joins the attempts
    assert [tuple(map(float, one.split(","))) for line in lines for one in line] == points
    (line,) = (one for one in tree.iter(f"{SVG}line") if one.attrib["class"] == "fault")
    assert milliseconds(found, float(line.attrib["x1"])) == pytest.approx(3837, abs=close)
    seconds = [one for one in tree.iter(f"{SVG}text") if "second" in one.attrib["class"].split()]
    for tick in seconds:
        assert milliseconds(found, float(tick.attrib["x"])) == pytest.approx(float(tick.text or "") * 1000, abs=close)


def test_every_number_of_the_page_is_in_the_json_output(here: Path) -> None:
    """Except those of the axes and of the drawing, and durations, which the output has in milliseconds."""
    report = report_of(SPOT, spot())
    tree = parsed(html_page(report))
    for svg in list(tree.iter()):
        for child in [one for one in svg if one.tag in (f"{SVG}svg", "style", "head")]:
            svg.remove(child)
    known = json.dumps(report.to_json())
    lengths = {f"{one.seconds:.3f}" for statuses in report.timeline.attempts for one in statuses}
    ms = {f"{int(one) / 1000:.3f}" for one in re.findall(r"\d+", json.dumps(report.timeline.to_json()))}
    shown = {one for text in tree.itertext() for one in re.findall(r"\d[\d.]*\d|\d", text)}
    moments = set(re.findall(r"\d+", f"{report.timeline.began:%Y-%m-%d %H:%M:%S}"))
    counts = {str(len(report.timeline.steps))}
    assert {one for one in shown - lengths - ms - moments - counts if one not in known} == set()


@pytest.mark.parametrize("where", ["reason", "line", "name", "job file"])
def test_hostile_text_in_page_is_escaped(here: Path, where: str) -> None:
    events: Iterator[FollowEvent] = kill()
    job_file = Path("job.yaml")
    if where == "reason":
        events = kill(f"rank 3 {HOSTILE}")
    elif where == "line":
        events = kill(line=HOSTILE)
    elif where == "name":
        write_job(here, KEPT.replace("epochs: 2", 'note: "</dd><script>alert(1)</script>"'), COUNTS)
    else:
        job_file = here / "<img src=x onerror=alert(1)>.yaml"
        job_file.write_text(KEPT)
    text = html_page(report_of(KILL, events, job_file))
    tree = parsed(text)
    tags = {one.tag.removeprefix(SVG) for one in tree.iter()}
    assert not tags & {"script", "img", "link", "iframe", "object", "image", "use", "a", "foreignObject"}
    assert not [name for one in tree.iter() for name in one.attrib if name.startswith("on") or "href" in name]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    assert not [char for char in text if not (char.isprintable() or char == "\n")]
    assert "ghp_a" not in text
    shown = "".join(tree.itertext())
    assert ("alert(1)" in shown) == (where != "line")


def test_page_has_styles_for_light_dark_and_print(here: Path) -> None:
    text = html_page(report_of(SPOT, spot()))
    assert text.count("@media (prefers-color-scheme:dark)") == text.count("@media print") == 2
    names = set(re.findall(r"var\((--[a-z]+)\)", text))
    for block in re.findall(r"(?:--[a-z]+:#[0-9a-f]+;?\s*){5,}", text):
        names_of_block = set(re.findall(r"(--[a-z]+):#", block))
        assert names_of_block <= names
    assert names == set(re.findall(r"(--[a-z]+):#", text))


def test_page_is_replaced_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        replace_file(file, "new \ud800")
    assert file.read_text() == "old"
    replace_file(file, "new")
    assert file.read_text() == "new" and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_plan_shows_the_newest_rehearsal_of_each_kind(here: Path, smdp_launch: Command) -> None:
    save_report(report_of(KILL, kill("no rank is named")))
    save_report(report_of(KILL, kill()))
    save_report(report_of(SPOT, spot()))
    rows = [line for line in smdp_launch("plan").stdout.splitlines() if "PASS" in line or "FAIL" in line]
    assert [re.sub(r"^rehearsed", "", one).strip() for one in sorted(rows, key=lambda one: "spot" in one)] == [
        "kill PASS 2026-11-22 10:07 UTC, 2 hosts x 2 workers: the job ended by itself, and its FailureReason names"
        " rank 3",
        "spot PASS 2026-11-22 10:07 UTC, 2 hosts x 2 workers: the job restarted, continued at step 7 and completed",
    ]
    document = the_document(smdp_launch("plan", "--json"), "plan")
    assert [(one["kind"], one["passed"], one["same_source"]) for one in document["rehearsals"]] == [
        ("kill", True, True), ("spot", True, True),
    ]  # fmt: skip
    assert "rehearsed" in smdp_launch("launch", "--dry-run").stdout


def test_rehearsal_of_earlier_source_is_marked(here: Path, smdp_launch: Command) -> None:
    save_report(report_of(SPOT, spot()))
    write_job(here, KEPT, COUNTS + "# changed\n")
    assert ", of an earlier source: the job restarted" in smdp_launch("plan").stdout
    (one,) = the_document(smdp_launch("plan", "--json"), "plan")["rehearsals"]
    assert one["same_source"] is False


@pytest.mark.parametrize(
    ("setting", "is_shown"),
    [
        ("name=other", True),
        ("role=arn:aws:iam::123456789012:role/another", True),
        ("script.hyperparameters.epochs=3", False),
        ("compute.max_run=700", False),
        ("engine=smdistributed", False),
    ],
)
def test_rehearsal_is_shown_for_jobs_with_the_same_settings(
    here: Path, smdp_launch: Command, setting: str, is_shown: bool
) -> None:
    save_report(report_of(SPOT, spot()))
    assert ("spot PASS" in smdp_launch("plan", "--set", setting).stdout) == is_shown


def test_invalid_report_file_is_skipped(here: Path, smdp_launch: Command) -> None:
    save_report(report_of(SPOT, spot()))
    (file,) = (here / ".smdp" / "rehearsals").iterdir()
    document = json.loads(file.read_text())
    changes: list[Any] = [b"", b"{", b"[" * 100_000, b"[1]", {"rehearsal": 2}, {"made": "now"}, {"passed": "yes"}]
    for one in [*changes, {"hosts": None}, {"reason": 5}]:
        file.write_bytes(one if isinstance(one, bytes) else json.dumps({**document, **one}).encode())
        ran = smdp_launch("plan")
        assert ran.returncode == ExitCode.OK, ran.stderr
        assert "rehearsed" not in ran.stdout


def test_saved_plan_keeps_its_rehearsals(here: Path, smdp_launch: Command) -> None:
    save_report(report_of(SPOT, spot()))
    assert smdp_launch("plan", "--out", "plan.json").returncode == ExitCode.OK
    (here / ".smdp").rename(here / "elsewhere")
    assert "spot PASS" in smdp_launch("launch", "plan.json", "--dry-run").stdout
    data = json.loads((here / "plan.json").read_text())
    for wrong in ([5], [{"kind": "spot"}], 5):
        (here / "plan.json").write_text(json.dumps({**data, "rehearsals": wrong}))
        assert smdp_launch("launch", "plan.json", "--dry-run").returncode == ExitCode.REFUSED


def test_folder_without_rehearsals_is_not_changed(here: Path) -> None:
    plan = planned(SPOT)
    assert with_rehearsals(plan) == plan
    assert not (here / ".smdp").exists()


RUN = ["--hosts", "2", "--workers-per-host", "1", "--report"]


@pytest.mark.runs
def test_rehearsal_writes_its_report(here: Path, smdp_launch: Command) -> None:
    (here / "spot.html").write_text("old")
    with private(state_folder(here) / "local"):
        ran = smdp_launch("rehearse", "spot", *RUN, "spot.html", "--json", "--at", "@4", "--for", "1")
        shown = on_a_terminal(here, ["rehearse", "kill", *RUN, "kill.html"], NO_COLOR="1")
    assert ran.returncode == ExitCode.OK, ran.stderr
    *lines, last = [json.loads(line) for line in ran.stdout.splitlines()]
    for one in lines:
        validator("follow").validate(one)
    validator("rehearsal").validate(last)
    assert (last["kind"], last["passed"], len(last["timeline"]["attempts"])) == ("spot", True, 2)
    statuses = [name for name, _ in groupby(one["status"] for one in lines if one.get("seen") == "status")]
    assert [one["name"] for attempt in last["timeline"]["attempts"] for one in attempt] == statuses
    (restored, *_), (fault,) = last["timeline"]["restored"], last["timeline"]["strikes"]
    assert restored["at_ms"] >= fault["at_ms"] + 1000
    tree = parsed((here / "spot.html").read_text())
    assert "".join(tree.itertext()).count("PASS") == 1
    assert len(list(tree.iter(f"{SVG}circle"))) == len(last["timeline"]["steps"])
    page_text = shown[shown.index("\nPASS  ") :]
    assert max(len(line) for line in page_text.splitlines() if "/" not in line) <= 80
    parsed((here / "kill.html").read_text())
    plan = smdp_launch("plan").stdout
    assert "spot PASS" in plan and "kill PASS" in plan


def test_unwritable_report_is_refused_before_the_job_runs(smdp_launch: Command, here: Path) -> None:
    ran = smdp_launch("rehearse", "spot", *RUN, "nowhere/spot.html")
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "nowhere/spot.html cannot be written" in ran.stderr and not (here / ".smdp").exists()


def test_report_does_not_replace_a_device(smdp_launch: Command) -> None:
    ran = smdp_launch("rehearse", "spot", *RUN, "/dev/null")
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "/dev/null exists and is not a regular file" in ran.stderr and Path("/dev/null").is_char_device()


def test_symbolic_link_to_report_is_kept(here: Path) -> None:
    (here / "link.html").symlink_to("real.html")
    replace_file((here / "link.html").resolve(), "new")
    assert (here / "link.html").is_symlink() and (here / "real.html").read_text() == "new"
