"""Many jobs at once, from many clients, and samples of the server's memory meanwhile."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.services.cloud import Cloud
from tests.support.waiting import wait_for

SCRIPT = """\
import os
print("ran", os.environ["TRAINING_JOB_NAME"], flush=True)
with open(os.environ["SM_MODEL_DIR"] + "/name", "w") as file:
    file.write(os.environ["TRAINING_JOB_NAME"])
"""


def resident(pid: int) -> int:
    """The resident memory of the process, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


@dataclass
class Memory:
    """Samples the memory of a process about twice a second while the context is open."""

    pid: int
    samples: list[int] = field(default_factory=list)

    def __enter__(self) -> Memory:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.5):
            self.samples.append(resident(self.pid))


def run_concurrently(cloud: Cloud, names: list[str], clients: int) -> dict[str, str]:
    """Run the jobs; the end status of each. `clients` clients start their jobs at the same moment."""
    cloud.put_script(SCRIPT)
    start = threading.Barrier(clients)

    def client(number: int) -> dict[str, str]:
        own = Cloud(cloud.endpoint)
        mine = names[number::clients]
        start.wait()
        for name in mine:
            own.start(name, SCRIPT)
        return {name: str(own.wait(name, seconds=540)["TrainingJobStatus"]) for name in mine}

    with ThreadPoolExecutor(clients) as pool:
        return {name: status for ended in pool.map(client, range(clients)) for name, status in ended.items()}


def assert_each_ran_once(cloud: Cloud, names: list[str]) -> None:
    pages = cloud.sagemaker.get_paginator("list_training_jobs").paginate()
    listed = [one["TrainingJobName"] for page in pages for one in page["TrainingJobSummaries"]]
    assert sorted(one for one in listed if one in set(names)) == sorted(names)
    for name in names:
        logs = (cloud.state_dir / "jobs" / name / "logs").glob("*.jsonl")
        lines = [json.loads(line)["message"] for path in logs for line in path.read_text().splitlines()]
        assert [one for one in lines if " ran " in one] == [f"[algo-1:0] ran {name}"]
    wait_for(lambda: not list(cloud.state_dir.glob("jobs/*/hosts")), "the removal of the host trees")
