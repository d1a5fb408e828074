"""`resume` is killed at a random moment and repeated: there is one new job, and it continues from the checkpoints."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import LOCAL, record_resumption, state_folder
from smdp_launch.jobs.resume import RESUMES_TAG
from smdp_launch.jobs.status.list_jobs import jobs_of_folder
from smdp_launch.localcloud.client.connect import private
from tests.conftest import LAUNCHER, clean_environment, command_in
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.jobs.stopped import stopped_job
from tests.support.json_documents import the_document
from tests.support.services.cloud import Cloud

ROUNDS = int(os.environ.get("SMDP_SOAK_ROUNDS", "30"))


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(1, marks=pytest.mark.runs),
        pytest.param(ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
    ids=["one", "many"],
)
def test_killed_and_repeated_resume_creates_one_job(tmp_path: Path, rounds: int) -> None:
    seed = int(os.environ.get("SMDP_SOAK_SEED", str(random.SystemRandom().randrange(1 << 32))))
    chance, kills, endings = random.Random(seed), 0, Counter[str]()
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        with private(state_folder(folder) / "local") as endpoint:
            cloud = Cloud(endpoint)
            old = stopped_job(folder, command_in(folder))
            killed, code = resume(folder, old, chance)
            kills += killed
            endings[code.name] += 1
            assert_continues(cloud, old, f"seed {seed}, round {number}")
            listed = the_document(command_in(folder)("list", "--json"), "list")["jobs"]
            assert [one["training_job_status"] for one in listed] == ["Completed", "Stopped"], f"seed {seed}"
        assert_nothing_runs(str(folder))
    print(f"\nseed {seed}: {rounds} jobs, {kills} kills, the last try ended with {dict(endings)}")


@pytest.mark.runs
def test_resume_without_job_is_not_the_last_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with private(state_folder() / "local") as endpoint:
        launcher = command_in(tmp_path)
        old = stopped_job(tmp_path, launcher)
        now = datetime.now(timezone.utc)
        killed = "small-20261121000000-0000"
        record_resumption(killed, old, LOCAL, "0" * 64, now, 1)
        for verb in (["status"], ["logs"], ["stop"], ["follow"], ["follow", "--json"]):
            ran = launcher(*verb)
            assert ran.returncode == ExitCode.SERVICE
            message = ran.stderr.splitlines()[-1]
            assert killed in message, verb
            assert message.endswith(f"; it was never created: run smdp-launch resume {old}"), verb
        ran = launcher("resume", "--detach")
        assert ran.returncode == ExitCode.OK, ran.stderr
        assert_continues(Cloud(endpoint), old, "")
        assert [one.summary for one in jobs_of_folder(9)] == ["completed", "never accepted by the service", "stopped"]


def resume(folder: Path, old: str, chance: random.Random) -> tuple[int, ExitCode]:
    """The number of kills until the resume completed, and its exit code and output."""
    kills = 0
    while True:
        with subprocess.Popen(
            [LAUNCHER, "resume", *chance.choice([[old], []]), "--detach"],
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            try:
                output, _ = running.communicate(timeout=chance.uniform(0.1, 1.5 + 0.5 * kills))
            except subprocess.TimeoutExpired:
                running.kill()
                kills += 1
                continue
        code = ExitCode(running.returncode)
        # The previous resume was killed after it had created the job, which is then the last launch of the folder.
        there = any(text in output for text in (f"{old} was resumed as", "still runs", "has completed"))
        assert code is ExitCode.OK or (code is ExitCode.REFUSED and there), output
        return kills, code


def assert_continues(cloud: Cloud, old: str, context: str) -> None:
    requests = [json.loads(one.read_text()) for one in (cloud.state_dir / "jobs").glob("*/request.json")]
    resumed = [one for one in requests if {"Key": RESUMES_TAG, "Value": old} in one["Tags"]]
    assert len(resumed) == 1, context
    (given,) = (one for one in requests if one["TrainingJobName"] == old)
    assert resumed[0]["CheckpointConfig"] == given["CheckpointConfig"], context
    name = resumed[0]["TrainingJobName"]
    assert cloud.wait(name)["TrainingJobStatus"] == "Completed", context
    assert [line.rpartition("] ")[2] for line in cloud.log(name) if "found" in line] == ["found ['step-0']"], context
