from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from smdp_entrypoint.processes.pipes import WriteTime, open_dated_pipe


def test_pipe_reports_its_write_time() -> None:
    reading, writing = open_dated_pipe()
    try:
        written = WriteTime(reading)
        time.sleep(0.05)
        before = time.time()
        os.write(writing, b"x")
        after = time.time()
        time.sleep(0.1)
        # The kernel's clock for files ticks, and lags by a tick at most.
        assert before - 0.02 <= written.before(time.time()) <= after
        assert os.read(reading, 10) == b"x"
    finally:
        os.close(reading)
        os.close(writing)


def test_ordinary_pipe_is_used_without_a_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    reading, writing = open_dated_pipe()
    os.write(writing, b"x")
    assert os.read(reading, 10) == b"x"
    os.close(reading)
    os.close(writing)
