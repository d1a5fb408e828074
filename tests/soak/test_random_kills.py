"""Any process of a running job is killed at a random time: the job ends with a status and leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import LAUNCHER, clean_environment
from tests.endtoend.conftest import Job
from tests.endtoend.leftovers import left_behind, processes

pytestmark = pytest.mark.soak
ROUNDS = int(os.environ.get("SMDP_SOAK_ROUNDS", "40"))
SCRIPT = """\
import os, time
from smdp_engine import progress
for step in range(1, 31):
    progress.step(step, 30)
    time.sleep(0.05)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], f"m{os.environ['RANK']}"), "w") as file:
        file.write(str(step))
"""


def victims(job: Job) -> dict[str, list[int]]:
    """The processes of each kind that can be killed now, by their command lines and environments."""
    mark = str(job.folder)
    environment = f"TRAINING_JOB_NAME={job.name}"
    return {
        "worker": processes(environment, "\0LOCAL_RANK="),
        "entrypoint": [
            one for one in processes(environment, "smdp_entrypoint\0") if one not in processes("\0LOCAL_RANK=")
        ],
        "host": processes("smdp_launch.localcloud.runtime.host_process", mark),
        "supervisor": processes("smdp_launch.localcloud.runtime.supervisor", mark),
        "server": processes("smdp_launch.localcloud.server\0", mark),
        "client": processes(str(LAUNCHER), f"SOAK={job.name}"),
    }


def test_random_kills_leave_nothing_behind(tmp_path: Path) -> None:
    seed = int(os.environ.get("SMDP_SOAK_SEED", str(random.SystemRandom().randrange(1 << 32))))
    chance = random.Random(seed)
    table: Counter[tuple[str, str]] = Counter()
    for number in range(ROUNDS):
        job = Job(tmp_path / str(number))
        job.folder.mkdir()
        job.write(SCRIPT)
        table[kill_one(job, chance)] += 1
    print(f"\nseed {seed}, {ROUNDS} rounds")
    for (victim, status), count in sorted(table.items()):
        print(f"{victim:<12}{status:<12}{count:>4}")


def kill_one(job: Job, chance: random.Random) -> tuple[str, str]:
    victim = chance.choice(["worker", "entrypoint", "host", "supervisor", "server", "client", "none"])
    command = [LAUNCHER, "launch", "--local", "--hosts", "2", "--workers-per-host", "1"]
    environment = clean_environment(SOAK=job.name)
    with subprocess.Popen(
        command,
        cwd=job.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as running:
        time.sleep(chance.uniform(0.3, 3.0))
        found = victims(job).get(victim, [])
        if found:
            os.kill(chance.choice(found), signal.SIGKILL)
        output, _ = running.communicate(timeout=120)
    if running.returncode != -signal.SIGKILL:
        assert b"Traceback" not in output, output.decode()
    assert left_behind(job.name, str(job.folder), deadline=60) == []
    states = [json.loads(one.read_text())["status"] for one in job.folder.glob(".smdp/local/jobs/*/state.json")]
    assert all(status in {"Completed", "Failed", "Stopped"} for status in states), (victim, states)
    return victim if found else "none", states[0] if states else "never made"
