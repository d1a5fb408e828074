"""A build of an adapter that is killed or has no space leaves nothing behind, and the next one succeeds."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from installation import SHIPPED, Installation

from smdp_engine.adapters import running

pytestmark = pytest.mark.skipif(SHIPPED is None, reason="the engine is installed without an adapter for torch")

DEADLINE_S = 60.0
# As gcc: a program that starts another one and has temporary files. It says when it is at work.
SLOW = """\
#!/bin/sh
sleep 1000 &
echo "$TMPDIR" >"$TMPDIR/temporary"
cp "$TMPDIR/temporary" {here}/at-work.new
mv {here}/at-work.new {here}/at-work
{trap}
wait
"""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {DEADLINE_S:g} s"
        time.sleep(0.05)


def processes_of(mark: Path) -> List[int]:
    """The processes with the folder in their arguments or environment, apart from this one."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            known = (one / "cmdline").read_bytes() + (one / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(str(mark)) in known and int(one.name) != os.getpid():
            found.append(int(one.name))
    return found


def left_in(installation: Installation) -> List[str]:
    return sorted(path.name for path in installation.cache.glob("*/*") if not path.name.endswith((".lock", ".log")))


class AtWork:
    def __init__(self, installation: Installation, trap: str = "") -> None:
        self.fast = installation.compiler.read_text()
        self._installation = installation
        installation.use_compiler(SLOW.format(here=installation.folder, trap=trap))
        self.building = installation.start()
        mark = installation.folder / "at-work"
        wait_until(mark.exists, "compiler at work")
        self.temporary = Path(mark.read_text().strip())
        assert self.temporary.parent.parent == installation.cache
        assert len(processes_of(installation.cache)) >= 3

    def assert_no_process_and_folder_is_left(self) -> None:
        wait_until(lambda: not processes_of(self._installation.cache), "end of the compiler's processes")
        assert not self.temporary.exists()

    def assert_nothing_is_left_and_the_next_build_succeeds(self) -> None:
        self.assert_no_process_and_folder_is_left()
        assert [name for name in left_in(self._installation) if not name.endswith(".failed")] == []
        self._installation.use_compiler(self.fast)
        built = Path(self._installation.run()[0])
        assert SHIPPED is not None and built.read_bytes() == SHIPPED.path.read_bytes()
        assert {built.name, f"{built.name}.sha256"} <= set(left_in(self._installation))


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP has its default effect in started processes, also if the tests run under nohup."""
    earlier = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, earlier)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_build_that_a_signal_ends_leaves_no_process_and_no_folder(without: Installation, number: str) -> None:
    at_work = AtWork(without)
    at_work.building.send_signal(getattr(signal, number))
    output, _ = at_work.building.communicate(timeout=DEADLINE_S)
    assert (output, at_work.building.returncode != 0) == ("", True)
    at_work.assert_nothing_is_left_and_the_next_build_succeeds()


def test_compiler_that_ignores_the_signal_is_killed(without: Installation) -> None:
    at_work = AtWork(without, trap="trap '' TERM")
    at_work.building.terminate()
    at_work.building.communicate(timeout=DEADLINE_S)
    at_work.assert_nothing_is_left_and_the_next_build_succeeds()


def test_process_that_waits_builds_when_the_building_one_is_killed(without: Installation) -> None:
    at_work = AtWork(without)
    without.use_compiler(at_work.fast)
    waiting = without.start()
    at_work.building.kill()
    output, errors = waiting.communicate(timeout=DEADLINE_S)
    assert waiting.returncode == 0, errors
    at_work.building.communicate(timeout=DEADLINE_S)
    at_work.assert_no_process_and_folder_is_left()
    name = Path(output.strip()).name
    assert left_in(without) == [name, f"{name}.sha256"]


def test_killed_supervisor_is_a_failed_build(without: Installation) -> None:
    at_work = AtWork(without)
    supervisors = [one for one in processes_of(without.cache) if b"running.py" in command_of(one)]
    assert len(supervisors) == 1
    os.kill(supervisors[0], signal.SIGKILL)
    _, errors = at_work.building.communicate(timeout=DEADLINE_S)
    assert at_work.building.returncode == 1
    assert "could not build it" in errors
    at_work.assert_nothing_is_left_and_the_next_build_succeeds()


def command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


def test_build_that_takes_too_long_ends_with_a_sentence(without: Installation, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (tmp_path / "log").open("wb") as log, pytest.raises(running.TookTooLong):
        running.run(["sh", "-c", "touch $TMPDIR/file; sleep 1000"], log.fileno(), scratch, 0.0, lambda _: None)
    assert not scratch.exists()


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=DEADLINE_S)


@pytest.mark.parametrize("what", ["temporary file", "adapter", "folder"])
def test_full_disk_ends_with_the_variable_that_names_another_folder(without: Installation, what: str) -> None:
    fast = without.compiler.read_text()
    target = '"$TMPDIR/cc.s"' if what == "temporary file" else '"$2"'
    writes = f"head -c 2000000 /dev/zero >{target} || exit 1"
    without.use_compiler(fast if what == "folder" else fast.replace("sleep 0.5", writes))
    with small_disk(without.cache):
        if what == "folder":
            with pytest.raises(OSError), (without.cache / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(4096))
        last = without.run(code=1)[-1]
        assert "No space left on device" in last
        assert last.endswith("Name a folder of yours: export SMDP_ADAPTER_CACHE=FOLDER")
        assert processes_of(without.cache) == []
        assert [name for name in left_in(without) if name != "filler"] == []
        without.use_compiler(fast)
        assert Path(without.run(SMDP_ADAPTER_CACHE=str(without.folder / "elsewhere"))[0]).exists()


def test_supervisor_works_without_a_name_of_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that embeds Python has none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", "")
    with (tmp_path / "log").open("wb") as log:
        assert running.run(["sh", "-c", "exit 3"], log.fileno(), tmp_path, 60.0, lambda _: None) == 3
