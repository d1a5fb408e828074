"""Adapters that were built on this machine, kept in the user's cache.

The folder is ``SMDP_ADAPTER_CACHE``, else ``smdp-engine`` in ``XDG_CACHE_HOME`` if that is absolute, else in
``~/.cache``. Below it is one folder for each state of the adapters' sources. A file ``NAME.so`` counts only with
``NAME.so.sha256``, which has its digest and is written after it. A lock lets one process build while the others wait;
they share a failure too.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Iterator, List, Optional, TextIO

from . import compiler, running
from .files import FOLDER, exact_name
from .frameworks import Installed

SOURCES = FOLDER / "source"
PACKAGE = FOLDER.parent
LONGEST_BUILD_S = 900.0
_POLL_S = 0.2
_QUIET_WAIT_S = 10.0  # how long a process waits for another one's build before it says so


class BuildFailed(Exception):
    """Why no adapter could be built; the sentence names the log."""


class CacheUnusable(Exception):
    """The cache's folder cannot be used; the sentence says why. ``fix``: a command, where one makes it usable."""

    def __init__(self, why: str, fix: Optional[str] = None) -> None:
        super().__init__(why)
        self.fix = fix


def folder() -> Path:
    return _root() / f"{_sources_digest()}-{platform.machine()}"


def _root() -> Path:
    """The local cloud of smdp-launch applies the same rules, so that simulated hosts use the user's folder."""
    chosen, base = os.environ.get("SMDP_ADAPTER_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()  # noqa: PTH111 (no home: no exception)
    home = Path(os.path.expanduser("~/.cache"))  # noqa: PTH111
    return (Path(base) if os.path.isabs(base) else home) / "smdp-engine"  # noqa: PTH117 (may be empty)


def stored(installed: Installed) -> Optional[Path]:
    """The whole and unchanged adapter of this framework in the cache, or None."""
    path = folder() / exact_name(installed)
    try:
        _refuse_foreign(path.parent)
        wanted = _digest_file(path).read_text(encoding="ascii").strip()
        return path if _digest(path) == wanted else None
    except (OSError, ValueError, CacheUnusable):
        return None


def discard(path: Path) -> None:
    """Take an adapter that cannot be loaded out of the cache."""
    with contextlib.suppress(OSError):
        _digest_file(path).unlink()


def build(installed: Installed, command: List[str], out: Optional[TextIO] = None) -> Path:
    """The adapter, built by this process or by another one that has the lock.

    Raises:
        BuildFailed: the compiler failed, or the build took too long.
        CacheUnusable: the cache's folder cannot be written, or another user could have written it.
    """
    path = folder() / exact_name(installed)
    out = out or sys.stderr
    try:
        path.parent.parent.parent.mkdir(parents=True, exist_ok=True)
        for own in (path.parent.parent, path.parent):
            own.mkdir(mode=0o700, exist_ok=True)
        _refuse_foreign(path.parent)
        asked = time.time()
        with _locked(path, out):
            found = stored(installed)
            if found:
                return found
            _raise_failure_since(asked, path)
            for left in path.parent.glob(f"{path.name}.*.part"):  # of a machine that stopped
                _remove(left)
            return _build(installed, command, path, out)
    except OSError as error:
        raise CacheUnusable(f"{path.parent}: {error.strerror or error}") from error


def _build(installed: Installed, command: List[str], path: Path, out: TextIO) -> Path:
    scratch = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial, log = scratch / path.name, path.with_name(f"{path.name}.log")
    announced = f"smdp: building the adapter for {installed} with {command[0]}, once, into {path.parent}"
    began = time.monotonic()
    scratch.mkdir()
    try:
        full = compiler.command(
            command, installed, partial, sources=SOURCES, engine_include=PACKAGE / "include", engine_folder=PACKAGE
        )
        _compile(full, partial, log, _Progress(announced, out))
        digest = _digest(partial)
        discard(path)
        partial.replace(path)
        whole = scratch / "sha256"
        whole.write_text(digest + "\n", encoding="ascii")
        whole.replace(_digest_file(path))
    except BuildFailed as error:
        _failure_file(path).write_text(str(error), encoding="utf-8")
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    out.write(f"smdp: built the adapter for {installed} in {time.monotonic() - began:.0f} s\n")
    out.flush()
    return path


def _compile(command: List[str], partial: Path, log: Path, progress: "_Progress") -> None:
    with os.fdopen(os.memfd_create("compiler-output"), "rb") as output:  # the disk may be full
        try:
            code = running.run(command, output.fileno(), partial.parent, LONGEST_BUILD_S, progress.show)
        except running.NotStarted as error:
            fix = ": correct CXX or unset it" if os.environ.get("CXX") else ""
            raise BuildFailed(f"{command[0]} cannot be run ({error}){fix}") from error
        except running.TookTooLong:
            raise BuildFailed(f"{command[0]} did not end within {LONGEST_BUILD_S:.0f} s") from None
        finally:
            progress.end()
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if code == 0 and partial.is_file():
        return
    full = os.strerror(errno.ENOSPC)
    if full in text:
        raise OSError(errno.ENOSPC, full)
    log.write_text(text, encoding="utf-8")
    error_line = _first_error(text, code) if code != 0 else "it succeeded, but wrote no file"
    raise BuildFailed(f"{command[0]} could not build it ({error_line}; all of it: {log})")


def _raise_failure_since(asked: float, path: Path) -> None:
    """For a process that waited while another one tried."""
    with contextlib.suppress(FileNotFoundError):
        failure = _failure_file(path)
        if failure.stat().st_mtime >= asked:
            raise BuildFailed(failure.read_text(encoding="utf-8"))


class _Progress:
    """One line: on a terminal with the seconds that have passed, else written once."""

    def __init__(self, text: str, out: TextIO) -> None:
        self._text, self._out = text, out
        self._moves = out.isatty()
        if not self._moves:
            out.write(f"{text}\n")
            out.flush()

    def show(self, seconds: float) -> None:
        if self._moves:
            self._out.write(f"\r{self._text} ({seconds:.0f} s)")
            self._out.flush()

    def end(self) -> None:
        if self._moves:
            self._out.write("\n")
            self._out.flush()


@contextlib.contextmanager
def _locked(path: Path, out: TextIO) -> Iterator[None]:
    lock = path.with_name(f"{path.name}.lock")
    began, reported = time.monotonic(), False
    with lock.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            waited = time.monotonic() - began
            if waited > LONGEST_BUILD_S + 60:
                raise BuildFailed(f"another process has held {lock} for {waited:.0f} s")
            if waited > _QUIET_WAIT_S and not reported:
                reported = True
                out.write(f"smdp: waiting for another process, which builds {path}\n")
                out.flush()
            time.sleep(_POLL_S)
        yield


def _refuse_foreign(where: Path) -> None:
    """What is loaded runs as this user, so no other user may be able to write it."""
    for one in (where, where.parent):
        state = one.stat()
        if state.st_uid not in (os.geteuid(), 0):
            raise CacheUnusable(f"{one} belongs to another user")
        if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CacheUnusable(f"{one} can be written by other users", f"chmod go-w {shlex.quote(str(one))}")


def _sources_digest() -> str:
    whole = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*/*"), *(PACKAGE / "include").glob("*/*")]):
        if path.is_file():
            whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:12]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _failure_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.failed")


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _remove(left: Path) -> None:
    if left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink()


def _first_error(output: str, code: int) -> str:
    lines = output.splitlines()
    error = next((line.strip() for line in lines if "error" in line), lines[-1].strip() if lines else "")
    return error or f"exit code {code}"


def clear() -> Path:
    """Remove all adapters that were built; return the folder."""
    root = folder().parent
    for one in root.glob(f"????????????-{platform.machine()}"):
        shutil.rmtree(one)
    return root
