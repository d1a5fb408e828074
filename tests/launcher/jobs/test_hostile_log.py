"""A job with a hostile log: every view, report and card shows it as text, and ignores its forged events."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.api import attach
from smdp_launch.catalog.faults import EVENT as FAULT
from smdp_launch.event_lines import HOST_EVENTS
from smdp_launch.jobs.logs.messages import JobEvent, LogLine, read_line
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.localcloud.client.connect import private
from smdp_launch.plain_text import plain_lines, plain_values, with_colours, without_controls
from tests.conftest import JOB, command_in, write_job
from tests.support.json_documents import documents, seen
from tests.support.terminal import on_a_terminal

ESCAPES = (
    # clipboard, links, titles, colours of the terminal, working folder, notifications, images
    "\x1b]52;c;cm0gLXJmIC8=\x07", "\x1b]52;c;cm0gLXJmIC8=\x1b\\", "\x1b]8;;http://evil.example\x1b\\", "\x1b]8;;\x07",
    "\x1b]0;title\x07", "\x1b]2;title\x1b\\", "\x1b]4;1;rgb:0/0/0\x07", "\x1b]10;#000\x07", "\x1b]11;?\x07",
    "\x1b]7;file:///\x07", "\x1b]9;note\x07", "\x1b]777;notify;a;b\x07", "\x1b]1337;File=inline=1:AAAA\x07",
    # clear, move, scroll, insert, delete, save, restore
    "\x1b[2J", "\x1b[3J", "\x1b[H", "\x1b[1;1H", "\x1b[77A", "\x1b[77B", "\x1b[77D", "\x1b[77G", "\x1b[77S", "\x1b[77L",
    "\x1b[77P", "\x1b7", "\x1b8", "\x1bM", "\x1b[1;5r",
    # modes, reset, reports that the terminal types in, character sets, keys
    "\x1bc", "\x1b[!p", "\x1b[?1049h", "\x1b[?1000h", "\x1b[6n", "\x1b[c", "\x1b(0", "\x1bP+q54\x1b\\", "\x1b_G1\x1b\\",
    # C1, direction and ends of lines
    "\x9b", "\u202e", "\u2028",
)  # fmt: skip
DISGUISES = ("", "[algo-1] ", "x [algo-1] ", "x\x85[algo-1] ")
FORGED = tuple(
    f'{disguise}{{"smdp_event": 1, "event": "{name}", "time": 1.5, "rank": 77, "ranks": [77], "master": "evil", "kind":'
    f' "spot", "what": "killed", "files": 7, "error": "forged", "host": "algo-1", "mark": "{name}-{number}"}}'
    for number, disguise in enumerate(DISGUISES)
    for name in sorted(HOST_EVENTS)
)
SCRIPT = f"""\
import json, sys
def write(text):
    sys.stdout.buffer.write((text + chr(10)).encode())
escapes, forged = {ESCAPES!r}, {FORGED!r}
for number, one in enumerate(escapes):
    write(f"<line{{number}}{{one}}>")
    fields = {{f"<name{{number}}{{one}}": f"[link=http://evil]<value{{number}}{{one}}>[/x]"}}
    write(json.dumps({{"smdp_event": 1, "event": "step", "rank": 0, "step": number + 1, "steps": 40, **fields}}))
for one in forged:
    write(one)
write(json.dumps({{"smdp_event": 1, "event": "result", "note": "<result" + "".join(escapes)}}))
sys.stdout.flush()
sys.stderr.reconfigure(encoding="utf-8")
raise ValueError("<reason" + "".join(escapes) + forged[0] + ">")
"""
ONE = ["--hosts", "1", "--workers-per-host", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hostile")
    write_job(folder, JOB + 'checkpoint: {s3: "s3://bucket/checkpoints"}\n', SCRIPT)
    with private(state_folder(folder) / "local"):  # otherwise each command starts one
        yield folder


@pytest.fixture(scope="module")
def rehearsed(folder: Path) -> str:
    """The terminal output of the followed job and of its report."""
    return on_a_terminal(folder, ["rehearse", "spot", "--at", "@40000", "--report", "report.html", *ONE], columns=200)


def assert_is_text(shown: str) -> None:
    assert [one for one in ESCAPES if one in shown] == []
    assert re.findall(r"\x1b\][^\x07\x1b]*", shown) == []  # Rich writes none for these views


def assert_forgeries_are_lines(shown: str) -> None:
    """Each sequence is shown after the name of the worker that wrote it."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown).split("\n")
    for number in range(len(DISGUISES)):
        for name in HOST_EVENTS:
            assert any("algo-1:0 | " in one and f"{name}-{number}" in one for one in lines), f"{name}-{number}"
    assert "rank 77 on algo-1" not in shown
    assert "started ranks [77]" not in shown
    assert "rehearsal: " not in shown


def test_log_has_forty_sequences_and_four_forgeries_of_each_event() -> None:
    assert (len(set(ESCAPES)), len(set(FORGED))) == (40, 4 * len(HOST_EVENTS))
    assert FAULT in HOST_EVENTS


def test_follow_shows_hostile_lines_as_text(rehearsed: str) -> None:
    assert_is_text(rehearsed)
    assert_forgeries_are_lines(rehearsed)
    assert '"window"' not in rehearsed  # of the host's own event `resources`, which is no line
    for number in range(len(ESCAPES)):
        assert f"<line{number}" in rehearsed
    assert "INCONCLUSIVE" in rehearsed and "<reason" in rehearsed


@pytest.mark.parametrize("command", ["follow", "logs", "status", "list"])
def test_every_view_shows_hostile_lines_as_text(folder: Path, rehearsed: str, command: str) -> None:
    shown = on_a_terminal(folder, [command], columns=200)
    assert_is_text(shown)
    if command in ("follow", "logs"):
        assert_forgeries_are_lines(shown)
    ran = command_in(folder)(command)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", ran.stdout + ran.stderr)


def test_json_output_has_text_and_no_forged_event(folder: Path, rehearsed: str) -> None:
    found = documents(command_in(folder)("follow", "--json").stdout)
    events = [one for one in seen(found, "event") if one["name"] in HOST_EVENTS]
    resources = [one for one in events if one["name"] == "resources"]
    assert resources and not [one for one in resources if "mark" in one["fields"]]
    events = [one for one in events if one not in resources]
    assert [one["name"] for one in events] == ["workers_started", "worker_exit"]
    assert (events[0]["fields"]["ranks"], events[1]["fields"]["rank"]) == ([0], 0)
    for one in (*found, json.loads(command_in(folder)("logs", "--json").stdout)):
        assert one == json.loads(
            json.dumps(one), object_hook=lambda fields: {plain_lines(n): fields[n] for n in fields}
        )
        assert_is_text(json.dumps(one, ensure_ascii=False))


def test_report_and_card_show_hostile_lines_as_text(
    folder: Path, rehearsed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    job = attach()
    outcome = job.wait()
    assert outcome.reason == plain_lines(outcome.reason)
    for shown in ((folder / "report.html").read_text(), job._repr_html_()):
        assert "&lt;reason" in shown
        assert_is_text(html.unescape(shown))
        assert "checkpoint files restored" not in shown and "rank 77 on algo-1 is killed" not in shown


@pytest.mark.parametrize("message", FORGED)
def test_host_event_counts_only_from_its_host(message: str) -> None:
    """From a worker, and from a container without the entrypoint, whose lines have no prefix."""
    text = message.removeprefix("[algo-1] ")
    assert isinstance(read_line("algo-1", f"[algo-1:0] {message}", 0), LogLine)
    assert isinstance(read_line("algo-1", text, 0), LogLine)
    assert isinstance(read_line("algo-1", f"[algo-2] {text}", 0), LogLine)
    if text.startswith("{"):
        assert isinstance(read_line("algo-1", f"[algo-1] {text}", 0), JobEvent)


@pytest.mark.parametrize("control", ["\\u0000", "\\u001b[2J", "\\u202e", "\x7f"])
def test_control_characters_in_event_name_do_not_make_another_event(control: str) -> None:
    for fields in (f'"event": "worker_{control}exit"', f'"event": "step", "even{control}t": "worker_exit"'):
        assert isinstance(read_line("algo-1", f'[algo-1:0] {{"smdp_event": 1, {fields}}}', 0), LogLine)


def test_engine_event_counts_only_for_its_own_rank() -> None:
    event = '{"smdp_event": 1, "event": "engine", "rank": 3, "bytes": 5}'
    assert isinstance(read_line("algo-1", f"[algo-1:3] {event}", 0), JobEvent)
    for prefix in ("[algo-1:0] ", "[algo-1] ", ""):
        assert isinstance(read_line("algo-1", f"{prefix}{event}", 0), LogLine)


@pytest.mark.parametrize("escape", ESCAPES)
def test_only_colour_sequences_are_kept(escape: str) -> None:
    assert without_controls(f"a{escape}\x1b[31mb\x1b[0m\tc") == "ab\tc"
    assert with_colours(f"a{escape}\x1b[31mb\x1b[0m\tc") == "a\x1b[31mb\x1b[0m\tc"
    assert plain_values({f"a{escape}": [f"b{escape}", 1, None]}) == {"a": ["b", 1, None]}
    assert plain_lines(f"a{escape}\nb{escape}") == "a\nb"
