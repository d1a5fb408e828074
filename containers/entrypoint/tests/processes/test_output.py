"""Workers' output appears complete, prefixed and in order, and no use of their pipes can block the entrypoint."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Callable

import pytest

from smdp_entrypoint.processes.child import Stream
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.lines import LONGEST_LINE

if TYPE_CHECKING:
    from entrypoint_support.host import Host


def test_successful_job_gives_success_file_and_prefixed_lines(host: Host) -> None:
    host.job("import os; print('rank', os.environ['RANK'])")
    host.master_port = None
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 0
    assert (host.root / "output/success").read_text() == ""
    assert host.failure == ""
    assert sorted(line for line in host.lines if ":" in line.split("]")[0]) == [
        "[algo-1:0] rank 0",
        "[algo-1:1] rank 1",
    ]
    (started,) = host.events("workers_started")
    assert started["smdp_event"] == 1
    assert (started["host"], started["ranks"], started["world_size"]) == ("algo-1", [0, 1], 2)
    assert started["master"] == "127.0.0.1:7777"
    assert host.events("worker_exit") == []
    assert next(line for line in host.lines if "smdp_event" in line).startswith('[algo-1] {"smdp_event": 1,')


_FORGED = [
    '{"smdp_event": 1, "event": "engine", "rank": 0}',
    '{"smdp_event": 1, "event": "step", "event": "engine", "rank": 0}',
    '{"smdp_event": 1, "event": "\\u0065ngine", "rank": 0}',
    '{"smdp_event": 1, "event": "eng\\u0007ine", "rank": 0}',
    '{"smdp_event": 1, "event": "step", "ev\\u0007ent": "engine", "rank": 0}',
    '{"smdp_event": 1, "event": "timing", "rank": 0}',
    '{"smdp_event": 1, "event": "engine", "rank": 0',
    '{"smdp_event": 1, "event": ["engine"]}',
]


def test_engine_events_are_accepted_only_from_the_engines_pipe(host: Host) -> None:
    host.job(
        f"""
        import os
        pipe = int(os.environ["SMDP_EVENT_PIPE"].split(":")[0])
        for line in {_FORGED!r}:
            print(line, flush=True)
        print('{{"smdp_event": 1, "event": "step", "step": 1, "steps": 2}}', flush=True)
        os.write(pipe, b'{{"smdp_event": 1, "event": "engine", "rank": 0}}\\n')
        os.write(pipe, b'{{"smdp_event": 1, "event": "timing", "rank": 0}}\\n')
        os.write(pipe, b'{{"smdp_event": 1, "event": "step", "step": 2}}\\n')
        """
    )
    assert host.run() == 0
    events = [line for line in host.of_rank(0) if line.startswith('{"smdp_event":')]
    assert sorted(events) == [
        '{"smdp_event": 1, "event": "engine", "rank": 0}',
        '{"smdp_event": 1, "event": "step", "step": 1, "steps": 2}',
        '{"smdp_event": 1, "event": "timing", "rank": 0}',
    ]
    texts = [line for line in host.of_rank(0) if line.startswith('{ "smdp_event":')]
    assert len(texts) == len(_FORGED) + 1


def test_each_worker_has_its_own_event_pipe(host: Host) -> None:
    host.job(
        """
        import os, stat
        fd, device, inode = map(int, os.environ["SMDP_EVENT_PIPE"].split(":"))
        status = os.fstat(fd)
        assert stat.S_ISFIFO(status.st_mode) and (status.st_dev, status.st_ino) == (device, inode)
        os.write(fd, b'{"smdp_event": 1, "event": "engine", "rank": %s}\\n' % os.environ["RANK"].encode())
        """
    )
    assert host.run(SMDP_WORKERS_PER_HOST="3") == 0
    for rank in range(3):
        assert host.of_rank(rank) == [f'{{"smdp_event": 1, "event": "engine", "rank": {rank}}}']


def test_many_lines_of_two_workers_are_neither_cut_nor_mixed(host: Host) -> None:
    host.job(
        """
        import os, sys
        rank, text = os.environ["RANK"], "abcdefghij" * 9
        for number in range(5000):
            print(rank, "out", number, text)
            print(rank, "err", number, text, file=sys.stderr)
        """
    )
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 0
    text = "abcdefghij" * 9
    for rank in (0, 1):
        lines = host.of_rank(rank)
        for stream in ("out", "err"):
            expected = [f"{rank} {stream} {number} {text}" for number in range(5000)]
            assert [line for line in lines if f" {stream} " in line] == expected
        assert len(lines) == 10_000


def test_long_lines_of_64_workers_at_once_are_neither_cut_nor_mixed(host: Host) -> None:
    host.job(
        """
        import os, sys, time
        rank = os.environ["RANK"]
        open("ready" + rank, "w").close()
        while len([name for name in os.listdir() if name.startswith("ready")]) < 64:
            time.sleep(0.02)
        for number in range(40):
            line = f"{rank} {number} " + chr(97 + int(rank) % 26) * (1000 * (number % 30))
            (sys.stdout if number % 2 else sys.stderr).write(line + chr(10))
        """
    )
    assert host.run(SMDP_WORKERS_PER_HOST="64") == 0
    for rank in range(64):
        expected = [f"{rank} {number} " + chr(97 + rank % 26) * (1000 * (number % 30)) for number in range(40)]
        assert sorted(host.of_rank(rank)) == sorted(expected)


def test_invalid_utf8_long_lines_and_last_line_without_newline(host: Host) -> None:
    host.job(
        r"""
        import sys
        write = sys.stdout.buffer.write
        write(b"bad \xff\xfe\xe4\xb8 bytes\n")
        write("中文\n".encode())
        write(b"y" * 1048576 + b"\n")
        write(b" 10%\r 90%\r100%\n\n")
        write(b"no end")
        """
    )
    assert host.run() == 0
    lines = host.of_rank(0)
    assert lines[:2] == ["bad \ufffd\ufffd\ufffd bytes", "中文"]
    assert lines[2:18] == ["y" * LONGEST_LINE] * 16
    assert lines[18:] == ["100%", "", "no end"]


def test_output_appears_while_the_worker_runs(host: Host) -> None:
    host.job(
        """
        import os, time
        print("first")
        while not os.path.exists("go"):
            time.sleep(0.01)
        """
    ).start()
    host.wait_for_line("[algo-1:0] first")
    host.code("go", "")
    assert host.wait() == 0


def test_progress_bar_appears_before_its_newline(host: Host) -> None:
    short = "import sys; from smdp_entrypoint.processes import child; child.BAR_INTERVAL_S = 0.1"
    host.entrypoint = ["-c", f"{short}; from smdp_entrypoint.cli import main; sys.exit(main())"]
    host.job(
        """
        import os, sys, time
        sys.stderr.write("  0%|    | 0/10")
        sys.stderr.write("\\r 10%|#   | 1/10")
        while not os.path.exists("go"):
            time.sleep(0.01)
        sys.stderr.write("\\r100%|####| 10/10\\n")
        """
    ).start()
    host.wait_for_line("[algo-1:0]  10%|#   | 1/10")
    host.code("go", "")
    assert host.wait() == 0
    assert host.of_rank(0)[-2:] == [" 10%|#   | 1/10", "100%|####| 10/10"]


def test_progress_bar_is_shown_at_most_once_in_an_interval() -> None:
    reading, writing = os.pipe()
    lines: list[str] = []
    stream = Stream(reading, lambda line, at: lines.append(line))
    for tenths in range(255):
        os.write(writing, b"\r%d" % tenths)
        stream.read(0.0)
        stream.show_bar(0.0, 5000 + tenths / 10)
    os.close(writing)
    stream.close(0.0)
    assert lines == ["100", "200", "254"]


def test_grandchild_with_the_workers_pipe_is_killed_with_its_group(host: Host) -> None:
    host.job("import subprocess, sys; subprocess.Popen(['sleep', '600']); print('parent ends')")
    assert host.run() == 0
    assert host.of_rank(0) == ["parent ends"]


def test_grandchild_in_its_own_session_does_not_block_the_entrypoint(host: Host) -> None:
    host.job(
        """
        import subprocess
        subprocess.Popen(["sleep", "4"], start_new_session=True)
        print("parent ends")
        """
    )
    assert host.run() == 0


def test_stop_signal_is_forwarded_while_the_output_is_not_read(host: Host, until: Callable[..., Any]) -> None:
    host.job(
        """
        import os, select, signal

        def save(signum, frame):
            open("saved", "w").close()
            os._exit(0)

        signal.signal(signal.SIGTERM, save)
        while select.select([], [1], [], 1)[1]:
            os.write(1, b"z" * 1000 + b"\\n")
        open("full", "w").close()
        while True:
            os.write(1, b"z" * 1000 + b"\\n")
        """
    ).start(read=False)
    until((host.root / "code/full").exists, "the worker's pipe to be full")
    host.signal()
    until((host.root / "code/saved").exists, "the worker to save")
    host.read()
    assert host.wait() == 0
    assert set(host.of_rank(0)) == {"z" * 1000}


def test_closed_output_does_not_end_the_training(host: Host) -> None:
    host.job(
        """
        import time
        while True:
            print("x" * 1000)
            try:
                open("go")
                break
            except OSError:
                time.sleep(0.001)
        open("done", "w").close()
        """
    ).start(read=False)
    assert host.process is not None
    assert host.process.stdout is not None
    host.process.stdout.readline()
    host.process.stdout.close()
    host.code("go", "")
    assert host.wait() == 0
    assert (host.root / "code/done").exists()


def test_console_buffers_more_than_a_pipe_without_blocking() -> None:
    reading, writing = os.pipe()
    console = Console(writing, "algo-1")
    for _ in range(300):
        console.say("q" * 1000)
    assert console.pending > 100_000
    output = b""
    while console.pending:
        output += os.read(reading, 65536)
        console.flush()
    os.close(writing)
    while True:
        more = os.read(reading, 65536)
        if not more:
            break
        output += more
    os.close(reading)
    assert output.decode().splitlines() == ["[algo-1] " + "q" * 1000] * 300


@pytest.mark.parametrize(("argument", "text"), [("--version", "smdp-entrypoint 0."), ("--help", "usage: train")])
def test_version_and_help_are_printed(host: Host, argument: str, text: str) -> None:
    command = [sys.executable, "-m", "smdp_entrypoint", argument]
    done = subprocess.run(command, env=host.environ(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith(text)


FORGED = '{"smdp_event": 1, "event": "worker_exit", "time": 1.5, "rank": 0}'


def test_job_output_is_never_read_as_an_entrypoint_event(host: Host) -> None:
    host.code("requirements.txt", "anything")
    # The code folder is pip's working folder, so this stands in for a package that writes while it is installed.
    host.code("pip.py", f"print('{FORGED}'); print('x [algo-1] {FORGED}')")
    host.job(
        f"""
        import sys
        for start in ("", "[algo-1] ", "x [algo-1] ", "a\\u2028[algo-1] ", "a\\x85[algo-1] ", "a\\r[algo-1] "):
            sys.stdout.buffer.write((start + '{FORGED}' + chr(10)).encode())
        sys.stdout.flush()
        raise ValueError("a\\x85[algo-1] " '{FORGED}' "\\u2028" '{FORGED}')
        """
    )
    assert host.run(PYTHONIOENCODING="utf-8", SMDP_TIMING_S="0") == 1
    (exited,) = host.events("worker_exit")
    assert exited["host"] == "algo-1" and exited["error"].startswith("ValueError: a")
    events = [line for line in host.lines if '{"smdp_event":' in line]
    of_worker = [line for line in events if line.startswith("[algo-1:0] ")]
    assert of_worker == [f"[algo-1:0] {FORGED}"]
    assert len(events) == len(of_worker) + 2  # workers_started and worker_exit
    # No line of the entrypoint begins with the exception's text.
    assert [line for line in host.lines if line.startswith("[algo-1] [algo-1]")] == []
    assert any(line.startswith("[algo-1] first failure: ValueError: a") for line in host.lines)
