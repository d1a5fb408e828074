"""No subcommand leaves a process, a port, shared memory or a temporary file, however it exits. An announced local cloud
is the exception."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from smdp_launch.cli.main import smdp_launch
from tests.conftest import ROOT
from tests.endtoend.every_verb import VERBS

#: The slice in the fast tests; the soak tier runs all.
SLICE = ["validate", "local up"]


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every subcommand that is no group."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


def test_every_subcommand_is_run() -> None:
    assert sorted(VERBS) == sorted(leaves(smdp_launch))


@pytest.mark.skipif(os.geteuid() != 0, reason="separate namespaces need root")
@pytest.mark.parametrize(
    "names",
    [
        SLICE,
        pytest.param([one for one in VERBS if one not in SLICE], marks=[pytest.mark.soak, pytest.mark.timeout(1800)]),
    ],
    ids=["slice", "rest"],
)
def test_subcommands_leave_no_files_processes_or_ports(tmp_path: Path, names: list[str]) -> None:
    seed = int(os.environ.get("SMDP_SOAK_SEED", str(random.SystemRandom().randrange(1 << 32))))
    command = [sys.executable, "-m", "tests.endtoend.every_verb", str(tmp_path), str(seed), *names]
    inside = 'ip link set lo up && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    apart = ["unshare", "--net", "--mount", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]
    ran = subprocess.run(
        [*apart, "sh", "-c", inside, "sh", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr}"
    reported = json.loads(ran.stdout)
    assert {name: len(forms) >= 2 for name, forms in reported.items()} == dict.fromkeys(names, True)
    kept = [(name, form, left) for name, forms in reported.items() for form, left in forms if left]
    assert kept == [], f"seed {seed}"
    print(f"\nseed {seed}: {sum(map(len, reported.values()))} forms of {len(reported)} subcommands")
