"""Folders that each have a supervisor process: jobs, endpoints and transform jobs.

A supervisor inherits the locked `supervisor.lock` and starts before its folder gets its name. So a visible folder has
a supervisor from its first moment, also if the server is killed, and has none any more once its lock is free.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from smdp_launch.localcloud.environment import server_environment
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.files import Lock, is_locked, read_json, remove_tree, write_json
from smdp_launch.localcloud.layout import StateFolder, SupervisedFolder
from smdp_launch.localcloud.services.tags import of_request

_UNFINISHED = ".new-"

Folder = TypeVar("Folder", bound=SupervisedFolder)


class Supervised(Generic[Folder]):
    """The folders of one kind, below one root. Any thread may call the methods.

    Args:
        kind: makes a folder of a path.
        module: of the supervisor, which gets the folder as its argument.
        retry: what a client should do that starts one while the local cloud is being ended.
    """

    def __init__(
        self,
        state: StateFolder,
        root: Path,
        kind: Callable[[Path], Folder],
        module: str,
        retry: str = "try again when it is up",
    ) -> None:
        self.lock = threading.Lock()
        self._state = state
        self._root = root
        self._kind = kind
        self._module = module
        self._retry = retry
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for leftover in root.glob(f"{_UNFINISHED}*"):
            remove_tree(leftover)
        self._watched = {path.name for path in root.iterdir() if path.is_dir()}

    def start(self, name: str, write: Callable[[Folder], None], taken: Callable[[Folder], ServiceError]) -> None:
        """Create a folder, with the files that `write` writes, and start its supervisor.

        Raises the error that `taken` returns where the folder exists, and ServiceError while the local cloud is being
        ended: the command that ends it has already listed what to stop.
        """
        shutdown = Lock(self._state.shutdown_lock)
        try:
            if not shutdown.take(shared=True):
                raise validation(f"The local cloud is going down; {self._retry}.")
            self._start(name, write, taken)
        finally:
            shutdown.release()

    def _start(self, name: str, write: Callable[[Folder], None], taken: Callable[[Folder], ServiceError]) -> None:
        draft = self._kind(self._root / f"{_UNFINISHED}{secrets.token_hex(8)}")
        folder = self._kind(self._root / name)
        draft.root.mkdir(mode=0o700)
        try:
            write(draft)
            lock = Lock(draft.lock)
            try:
                lock.take()
                with self.lock:
                    if folder.root.exists():
                        raise taken(folder)
                    self._processes[name] = self._run(draft, folder, lock)
                    self._watched.add(name)
            finally:
                lock.release()
        except BaseException:
            remove_tree(draft.root)
            raise

    def folders(self) -> list[Folder]:
        """Those that have a supervisor or are not finalized."""
        with self.lock:
            return [self._kind(self._root / name) for name in sorted(self._watched)]

    def active(self) -> bool:
        """Whether a supervisor runs."""
        return any(is_locked(folder.lock) for folder in self.folders())

    def reap(self, finalize: Callable[[Folder], bool]) -> None:
        """Call `finalize` for each folder without a supervisor, again and again until it returns True."""
        for folder in self.folders():
            process = self._processes.get(folder.name)
            if process is not None:
                process.poll()
            if not is_locked(folder.lock) and finalize(folder):
                with self.lock:
                    self._watched.discard(folder.name)
                    self._processes.pop(folder.name, None)

    def kill(self) -> None:
        """Kill the supervisors that this server has started; their hosts end with them."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def remove(self, folder: Folder) -> None:
        """Raises FileNotFoundError for a folder that was removed meanwhile."""
        removed = self._root / f"{_UNFINISHED}{secrets.token_hex(8)}"
        with self.lock:
            folder.root.rename(removed)
            self._watched.discard(folder.name)
        remove_tree(removed)

    def tags(self, folder: Folder) -> Mapping[str, str]:
        tags: dict[str, str] = read_json(folder.tags) or {}
        return tags

    def change_tags(self, folder: Folder, added: Mapping[str, str], removed: Iterable[str]) -> None:
        dropped = set(removed)
        with self.lock:
            kept = {key: value for key, value in self.tags(folder).items() if key not in dropped}
            write_json(folder.tags, {**kept, **added})

    def _run(self, draft: Folder, folder: Folder, lock: Lock) -> subprocess.Popen[bytes]:
        """Start the supervisor and give the folder its name. The supervisor waits until this process has closed the
        pipe, in whatever way."""
        waiting, named = os.pipe()
        try:
            with draft.supervisor_log.open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", self._module, str(folder.root), str(waiting)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=server_environment(),
                    start_new_session=True,
                    pass_fds=(lock.fileno(), waiting),
                )
            draft.root.rename(folder.root)
        finally:
            os.close(waiting)
            os.close(named)
        return process


def write_request(draft: SupervisedFolder, request: Mapping[str, Any], region: str) -> None:
    """Write the call that creates what is in the folder: its region, its tags, and the rest of the request."""
    write_json(draft.region_file, {"region": region})
    write_json(draft.tags, of_request(request))
    write_json(draft.request, {key: value for key, value in request.items() if key != "Tags"})
