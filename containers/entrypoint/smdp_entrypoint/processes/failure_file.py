"""The file whose first 1,024 characters the platform shows as the reason of a failed job."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from smdp_entrypoint.processes.failure import LONGEST_FILE

# Every character may take four bytes.
_RESERVED_BYTES = 4 * LONGEST_FILE


class FailureFile:
    """Written as soon as a cause is known, and again when more is known; text that the script wrote there stays
    first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ours = ""
        self._reserve: int | None = None

    def reserve_room(self) -> None:
        """Reserve disk space with an unnamed file, so that a job that fills the disk can still write its failure."""
        with contextlib.suppress(OSError, AttributeError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._reserve = os.open(self.path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            os.write(self._reserve, os.urandom(_RESERVED_BYTES))

    def write(self, text: str) -> None:
        """Raises OSError."""
        own = self._scripts_text()
        whole = f"{own}\n{text}" if own else text
        if text.partition("\n")[0] in own or len(own) >= LONGEST_FILE:
            return
        self._free_room()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._ours = whole[:LONGEST_FILE][len(own) :].strip()
        self.path.write_text(whole[:LONGEST_FILE], encoding="utf-8", errors="replace")

    def _scripts_text(self) -> str:
        """The file's text without the entrypoint's own: a script may write during its shutdown, over ours or after
        it."""
        if not self.path.is_file():
            return ""
        text = self.path.read_text(encoding="utf-8", errors="replace").rstrip()
        if self._ours:
            text = text.replace(self._ours, "", 1)
        return text.strip()

    def _free_room(self) -> None:
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
