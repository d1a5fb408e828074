"""Channels that are mounted: what a program finds in them, and how fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.isolation import needs_fuse
from tests.support.waiting import DEADLINE

pytestmark = [
    needs_fuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts in the program's own namespace need root"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/one").write_bytes(bytes(range(256)) * 8192)  # 2 MiB
    for number in range(300):
        (folder / f"deep/{number}").write_bytes(b"%d" % number)
    (folder / "empty").touch()
    return folder


def run(
    source: Path, program: str, kind: str = "objects", rate: float = 0, latency: float = 0
) -> tuple[Any, dict[str, Any]]:
    """What the program printed as JSON, and the counters."""
    counters = source.parent / "counters.json"
    arguments = [kind, str(source), str(rate), str(latency), str(counters), textwrap.dedent(program)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.mounted", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), json.loads(counters.read_text())


@pytest.mark.parametrize("kind", ["objects", "folder"])
def test_every_file_has_its_bytes(source: Path, kind: str) -> None:
    program = """
        import json, hashlib
        found = {}
        for folder, _, names in os.walk(mount):
            for name in names:
                path = Path(folder, name)
                data = path.read_bytes()
                assert len(data) == path.stat().st_size
                found[str(path.relative_to(mount))] = hashlib.sha256(data).hexdigest()
        print(json.dumps(found))
    """
    import hashlib

    found, counted = run(source, program, kind)
    files = [one for one in source.rglob("*") if one.is_file()]
    assert found == {str(one.relative_to(source)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}
    assert counted["bytes"] == sum(one.stat().st_size for one in files)


@pytest.mark.parametrize("kind", ["objects", "folder"])
def test_program_cannot_write(source: Path, kind: str) -> None:
    program = """
        import json
        actions = {
            "create": lambda: (mount / "new").touch(),
            "append": lambda: open(mount / "deep/1", "a"),
            "remove": lambda: (mount / "deep/1").unlink(),
            "rename": lambda: (mount / "deep/1").rename(mount / "x"),
            "folder": lambda: (mount / "x").mkdir(),
            "link": lambda: (mount / "x").symlink_to("/"),
            "chmod": lambda: (mount / "deep/1").chmod(0),
        }
        errors = {}
        for name, action in actions.items():
            try:
                action()
            except OSError as error:
                errors[name] = error.strerror
        print(json.dumps(errors))
    """
    errors, _ = run(source, program, kind)
    names = ("create", "append", "remove", "rename", "folder", "link", "chmod")
    assert errors == dict.fromkeys(names, "Read-only file system")


def test_file_can_be_mapped_and_read_at_any_place(source: Path) -> None:
    program = """
        import json, mmap
        with open(mount / "deep/er/one", "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            file.seek(-3, 2)
            print(json.dumps([list(mapped[1000:1004]), list(file.read()), list(os.pread(file.fileno(), 2, 70000))]))
    """
    data = (source / "deep/er/one").read_bytes()
    found, _ = run(source, program)
    assert [bytes(one) for one in found] == [data[1000:1004], data[-3:], data[70000:70002]]


def test_object_is_read_again_when_it_is_opened_again(source: Path) -> None:
    program = """
        for _ in range(3):
            (mount / "deep/er/one").read_bytes()
        print("null")
    """
    _, counted = run(source, program)
    assert counted["bytes"] == 3 * (2 << 20)


def test_object_that_changed_cannot_be_opened_and_an_open_one_keeps_its_bytes(source: Path) -> None:
    program = f"""
        import json
        source = Path({str(source)!r})
        opened = open(mount / "deep/1", "rb")
        for name in ("1", "2"):
            (source / "new").write_bytes(b"longer than before")
            (source / "new").rename(source / "deep" / name)
        (source / "deep/3").unlink()
        errors = [opened.read().decode()]
        for name in ("2", "3"):
            try:
                (mount / "deep" / name).read_bytes()
            except OSError as error:
                errors.append(error.strerror)
        print(json.dumps(errors))
    """
    found, _ = run(source, program)
    assert found == ["1", "Stale file handle", "No such file or directory"]


def test_link_in_a_folder_leads_nowhere_else_on_this_machine(source: Path) -> None:
    (source.parent / "secret").write_text("secret")
    (source / "out").symlink_to(source.parent / "nothing")
    (source / "inside").symlink_to("deep/7")
    program = """
        import json
        print(json.dumps([os.readlink(mount / "out"), (mount / "inside").read_text(), (mount / "out").exists()]))
    """
    found, _ = run(source, program, "folder")
    assert found == [str(source.parent / "nothing"), "7", False]


def test_change_in_a_folder_is_visible(source: Path) -> None:
    program = f"""
        import json, time
        source = Path({str(source)!r})
        assert (mount / "deep/1").read_text() == "1"
        (source / "deep/1").write_text("changed")
        (source / "deep/added").write_text("added")
        while (mount / "deep/1").read_text() != "changed":
            time.sleep(0.05)
        print(json.dumps((mount / "deep/added").read_text()))
    """
    assert run(source, program, "folder")[0] == "added"


def test_bytes_take_the_time_of_the_rate(source: Path) -> None:
    rate = 4_000_000
    program = """
        import json, time
        began = time.monotonic()
        (mount / "deep/er/one").read_bytes()
        print(json.dumps(time.monotonic() - began))
    """
    seconds, counted = run(source, program, rate=rate)
    least = ((2 << 20) - rate * 0.1) / rate
    assert seconds >= least
    assert counted["seconds"] >= least - 0.05
    assert counted["bytes"] == 2 << 20


def test_each_opening_waits_for_the_latency(source: Path) -> None:
    program = """
        import json, threading, time
        waits = []
        def read(number):
            for index in range(5):
                began = time.monotonic()
                (mount / "deep" / str(10 * number + index)).read_bytes()
                waits.append(time.monotonic() - began)
        readers = [threading.Thread(target=read, args=(number,)) for number in range(8)]
        [one.start() for one in readers]
        [one.join() for one in readers]
        print(json.dumps(waits))
    """
    waits, counted = run(source, program, latency=0.1)
    assert len(waits) == 40
    assert min(waits) >= 0.1
    assert counted["seconds"] >= 0.5


def test_killed_reader_does_not_wait_for_its_bytes(source: Path) -> None:
    program = """
        import json, subprocess, sys, time
        code = f"print(1, flush=True); open({str(mount / 'deep/1')!r}).read()"
        reader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        reader.stdout.readline()
        time.sleep(0.3)  # usually it waits by then; killed earlier it must end as well
        reader.kill()
        print(json.dumps(reader.wait()))
    """
    began = time.monotonic()
    assert run(source, program, latency=3600)[0] == -9
    assert time.monotonic() - began < DEADLINE
