"""A YAML language server, as editors have it, explains, completes and checks a job file with the schema."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from smdp_launch.jobfile.model.editor import schema_text

SERVER = shutil.which("yaml-language-server")
pytestmark = pytest.mark.skipif(SERVER is None, reason="no yaml-language-server: npm install -g yaml-language-server")

JOB = """\
# yaml-language-server: $schema=job.schema.json
schema: 1
name: small
engine: native
compute:
  instance_type: ml.p4d.24xlarge
  max_runs: 600
notify:
  on: [end, later]
"""
_SETTINGS = {"hover": True, "completion": True, "validate": True}
_DEADLINE = 60.0


class Editor:
    """A language client with one open file."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input: IO[bytes] = process.stdin
        self._messages: queue.Queue[Any] = queue.Queue()
        self._number = 0
        self.published: list[Any] = []
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        capabilities = {
            "textDocument": {"hover": {"contentFormat": ["markdown"]}},
            "workspace": {"configuration": True},
        }
        self.call("initialize", {"processId": None, "rootUri": file.parent.as_uri(), "capabilities": capabilities})
        self._send({"method": "initialized", "params": {}})
        self._uri, self._lines = file.as_uri(), file.read_text().splitlines()
        document = {"uri": self._uri, "languageId": "yaml", "version": 1, "text": file.read_text()}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def call(self, method: str, parameters: Any) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": parameters})
        while True:
            message = self._messages.get(timeout=_DEADLINE)
            if message.get("id") == self._number and "method" not in message:
                return message["result"]
            self._answer(message)

    def hover(self, key: str) -> str:
        line = next(number for number, text in enumerate(self._lines) if text.lstrip().startswith(f"{key}:"))
        position = {"line": line, "character": self._lines[line].index(key) + 1}
        shown = self.call("textDocument/hover", {"textDocument": {"uri": self._uri}, "position": position})
        return str(shown["contents"]["value"])

    def completions(self) -> set[str]:
        position = {"line": len(self._lines), "character": 0}
        found = self.call("textDocument/completion", {"textDocument": {"uri": self._uri}, "position": position})
        return {one["label"] for one in found["items"]}

    def diagnostics(self) -> list[tuple[int, str]]:
        """Wait for the first that are not empty: line and message."""
        while not self.published:
            self._answer(self._messages.get(timeout=_DEADLINE))
        return [(one["range"]["start"]["line"] + 1, one["message"]) for one in self.published]

    def _answer(self, message: Any) -> None:
        if message.get("method") == "textDocument/publishDiagnostics":
            self.published = message["params"]["diagnostics"] or self.published
        elif "id" in message and "method" in message:
            is_settings = message["method"] == "workspace/configuration"
            wanted = message["params"]["items"] if is_settings else []
            result = [_SETTINGS if one.get("section") == "yaml" else None for one in wanted]
            self._send({"id": message["id"], "result": result if is_settings else None})

    def _send(self, message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._input.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._input.flush()

    def _read(self, output: IO[bytes]) -> None:
        while True:
            length = 0
            while (line := output.readline()) not in (b"\r\n", b""):
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            if not length:
                return
            self._messages.put(json.loads(output.read(length)))


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    (tmp_path / "job.schema.json").write_text(schema_text(), encoding="utf-8")
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    process = subprocess.Popen([str(SERVER), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Editor(process, file)
    finally:
        process.kill()
        process.communicate()


def test_editor_explains_completes_and_checks_a_job_file(editor: Editor) -> None:
    assert "The hosts, and the limits of their time." in editor.hover("compute")
    assert "`gloo`: torch.distributed on CPUs." in editor.hover("engine")
    assert {"channels", "output", "spot", "budget"} <= editor.completions()
    found = dict(editor.diagnostics())
    assert found[7] == "Property max_runs is not allowed."
    assert '"end", "trouble"' in found[9]
