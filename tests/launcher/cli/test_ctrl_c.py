"""Ctrl-C raises KeyboardInterrupt after an import or a validation, and not within: each program sends the signal to
itself at the moment that is tested."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import LAUNCHER, clean_environment

_SENDS = "import os, signal\ndef send(): os.kill(os.getpid(), signal.SIGINT)\n"
_WAITS = """
import time
from smdp_launch.signals.interrupts import handle_interrupts
handle_interrupts()
try:
    {statement}
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""
_MODULE = """
from sent import send
class Attribute:
    def __set_name__(self, owner, name):
        send()
class Owner:
    attribute = Attribute()
print("complete", flush=True)
"""
_MODEL = """
from collections.abc import Mapping
from pydantic import BaseModel, model_validator
from sent import send
class Checked(type):
    def __instancecheck__(cls, value):
        send()
        return True
class Type(metaclass=Checked):
    pass
class Model(BaseModel, arbitrary_types_allowed=True):
    value: Type
    @model_validator(mode="after")
    def end(self):
        print("complete", flush=True)
        return self
"""


def _run(
    folder: Path, *command: str | Path, environment: dict[str, str] | None = None, ignored: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run the command, with SIGINT as a shell starts it, or ignored."""
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    return subprocess.run(
        command,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
        cwd=folder,
        env=environment or clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _outcome(folder: Path, statement: str) -> list[str]:
    """What the program prints that runs the statement and then waits.

    The module and the model print "complete" at the end of the import and of the validation: after these, the interrupt
    may come at any moment."""
    (folder / "sent.py").write_text(_SENDS)
    (folder / "module.py").write_text(_MODULE)
    (folder / "model.py").write_text(_MODEL)
    ran = _run(folder, sys.executable, "-c", _WAITS.format(statement=statement))
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.parametrize(
    "statement",
    ["import module", "from model import Model; Model.model_validate({'value': 1})"],
    ids=["class", "check"],
)
def test_interrupt_waits_for_the_end_of_an_import_and_of_a_validation(tmp_path: Path, statement: str) -> None:
    assert _outcome(tmp_path, statement) == ["complete", "interrupted"]


def test_interrupt_elsewhere_is_raised_where_it_arrives(tmp_path: Path) -> None:
    assert _outcome(tmp_path, "from sent import send; send(); print('later')") == ["interrupted"]


@pytest.mark.parametrize("module", ["click", "pydantic.main", "smdp_launch.cli.commands.validate"])
def test_interrupt_while_the_command_starts_is_no_bug(tmp_path: Path, module: str) -> None:
    """The process sends the signal to itself while it creates a class, in the import of the module. The command may end
    before the signal is sent again."""
    (tmp_path / "sent.py").write_text(_SENDS)
    (tmp_path / "module.py").write_text(_MODULE)
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            import module
sys.meta_path.insert(0, Finder())
"""
    )
    (tmp_path / "job.yaml").write_text("schema: 1\n")
    ran = _run(tmp_path, LAUNCHER, "validate", environment=clean_environment(PYTHONPATH=str(tmp_path)))
    assert "Traceback" not in ran.stderr
    if ran.returncode != ExitCode.JOB_FILE_REFUSED:
        assert (ran.returncode, ran.stderr.strip().splitlines()[-1]) == (ExitCode.INTERRUPTED, "interrupted")


def test_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    program = """
import signal
from smdp_launch.signals.interrupts import handle_interrupts
handle_interrupts()
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""
    ran = _run(tmp_path, sys.executable, "-c", program, ignored=True)
    assert ran.stdout == "True\n", ran.stderr
