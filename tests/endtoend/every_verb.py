"""Runs subcommands successfully, with an error and with an interrupt, and prints what each leaves behind.

    python -m tests.endtoend.every_verb FOLDER SEED VERB...

It is process 1 of separate namespaces (see `test_every_verb`), so every other process, listening socket and shared
memory segment is a leftover of a subcommand.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Manager
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.session

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import JOB, LAUNCHER, clean_environment, write_job
from tests.endtoend.leftovers import listening
from tests.launcher.jobs import test_rehearse as rehearsed
from tests.support.jobs.stopped import CHECKPOINT, COUNTS, stored
from tests.support.services.cloud import names_in
from tests.support.waiting import wait_for

HERE = ["--local", "--hosts", "2", "--workers-per-host", "1"]
TRAINS = "import os\nopen(os.environ['SM_MODEL_DIR'] + '/model', 'w').close()\n"
WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"
SERVE = "serve: {entry: inference.py, instance_type: ml.m5.large, lifetime: 3600}\n"
SWEEP = """\
metrics: {loss: 'loss=([0-9.]+)'}
sweep:
  objective: {metric: loss, goal: minimize}
  trials: 1
  ranges: {integer: {depth: {min: 1, max: 4}}}
"""
SERVES = "def model_fn(folder):\n    return len\n\n\ndef predict_fn(data, model):\n    return [model(data)]\n"
_SETTLES = 60.0  # seconds for processes that exit by themselves
_LATEST = 1.2  # seconds; a subcommand is interrupted at a random time up to then


@dataclass(frozen=True)
class Verb:
    """How a subcommand is run.

    Args:
        usual: its arguments; None where the tier that is named in `elsewhere` runs it.
        failing: arguments with which it cannot do what it should.
        code: what the failing form ends with.
        given: makes what it needs, and takes that away again.
        announced: what it leaves, it leaves as reported: `after` takes it away.
    """

    usual: list[str] | None
    failing: list[str]
    code: ExitCode
    given: Callable[[Place], Manager[list[str]]] = field(default=lambda _: nullcontext([]))
    after: tuple[str, ...] = ()
    elsewhere: str = ""


class Place:
    """A folder with a job, a home and a folder for temporary files, all private."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "job"
        self.temporary = folder / "tmp"
        for one in (self.folder, self.temporary, folder / "home"):
            one.mkdir(parents=True)
        self.environment = clean_environment(HOME=str(folder / "home"), TMPDIR=str(self.temporary))
        self.write(TRAINS)

    def write(self, script: str, text: str = JOB) -> None:
        write_job(self.folder, text, script)

    def start(self, arguments: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [LAUNCHER, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, code: int = ExitCode.OK) -> str:
        with self.start(list(arguments)) as running:
            output, _ = running.communicate(timeout=120)
        assert running.returncode == code, f"{arguments}: {running.returncode}, not {code}\n{output}"
        assert "Traceback" not in output, output
        return output

    def left(self) -> dict[str, list[str]]:
        """The current resources besides this process."""
        return {
            "processes": [reported for pid, reported in _processes() if pid != os.getpid()],
            "ports": listening(),
            "shared memory": sorted(names_in("/dev/shm")),
            "temporary files": sorted(map(str, self.temporary.rglob("*"))),
        }

    def settled(self) -> dict[str, list[str]]:
        """The resources that remain after `_SETTLES`."""
        deadline = time.monotonic() + _SETTLES
        while True:
            found = {name: left for name, left in self.left().items() if left}
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.05)


def _processes() -> Iterator[tuple[int, str]]:
    """All processes except zombies, which process 1 inherits."""
    for one in Path("/proc").iterdir():
        try:
            if one.name.isdecimal() and (one / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield int(one.name), (one / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


@contextmanager
def torch_script(place: Place) -> Iterator[list[str]]:
    place.write("import torch\n")
    yield []


@contextmanager
def ended_job(place: Place) -> Iterator[list[str]]:
    if not (place.folder / STATE_FOLDER).exists():
        place.run("launch", *HERE)
    yield []


@contextmanager
def trained_model(place: Place) -> Iterator[list[str]]:
    """An ended job with a model that can be served."""
    place.write(TRAINS, JOB + SERVE)
    (place.folder / "src" / "inference.py").write_text(SERVES)
    place.run("launch", *HERE)
    yield []


@contextmanager
def served_model(place: Place) -> Iterator[list[str]]:
    """An endpoint, which is deleted afterwards, and a request for it."""
    with trained_model(place):
        (place.folder / "request.json").write_text("[1]")
        place.run("deploy", "--local")
        yield []
        place.run("local", "down", "--grace", "0")


@contextmanager
def ended_sweep(place: Place) -> Iterator[list[str]]:
    """A sweep of one trial, which has ended."""
    write_job(place.folder, f"{JOB}{SWEEP}", "print('loss=1')\n")
    place.run("launch", *HERE)
    yield []


@contextmanager
def running_job(place: Place) -> Iterator[list[str]]:
    place.write(WAITS)
    place.run("launch", *HERE, "--detach")
    yield []
    place.run("local", "down", "--grace", "0")


@contextmanager
def cut_off_job(place: Place) -> Iterator[list[str]]:
    """A job with a checkpoint. Jobs that were resumed from it are stopped afterwards."""
    place.write(COUNTS, CHECKPOINT)
    before = len(stored(place.folder))
    place.run("launch", *HERE[:1], "--hosts", "1", "--workers-per-host", "1", "--detach")
    wait_for(lambda: len(stored(place.folder)) > before, "the checkpoint")
    place.run("stop")
    place.run("follow", "--quiet", code=ExitCode.JOB_STOPPED)
    yield []
    place.run("local", "down", "--grace", "0")


@contextmanager
def counting_job(place: Place) -> Iterator[list[str]]:
    """A job with checkpoints, and the options of a small run."""
    place.write(rehearsed.COUNTS, rehearsed.KEEPS)
    yield HERE[1:]


@contextmanager
def cloud(place: Place) -> Iterator[list[str]]:
    """A running local cloud in place of AWS, with the resources that the job names."""
    kept = dict(place.environment)
    exports = [shlex.split(line)[1] for line in place.run("local", "up").splitlines() if line.startswith("export ")]
    given = dict(one.split("=", 1) for one in exports)
    place.environment.update(given)
    session = botocore.session.Session()
    session.set_credentials(given["AWS_ACCESS_KEY_ID"], given["AWS_SECRET_ACCESS_KEY"])
    s3 = session.create_client("s3", region_name=given["AWS_REGION"], endpoint_url=given["AWS_ENDPOINT_URL"])
    s3.create_bucket(Bucket="bucket")
    try:
        yield []
    finally:
        place.environment.clear()
        place.environment.update(kept)
        place.run("local", "down")


@contextmanager
def registry(_: Place) -> Iterator[list[str]]:
    """A place with an image, whose name is the last argument."""
    from tests.support.services.registry import Server

    server = Server()
    try:
        yield [server.put_image()]
    finally:
        server.close()


_TORCH = "tests/launcher/jobs/test_rehearse.py, whose jobs wait for each other"
_HANGS = "tests/launcher/hangs/test_rehearse_hang.py, whose jobs are watched"
_LINKS = "tests/localcloud/runs/test_network_probe.py, which has links"
_TWICE = ["--at", "@5", "--after", "1"]
_INPUT = "tests/launcher/jobs/test_rehearse_slow_input.py, whose jobs read a channel"
_IMAGES = "tests/images, which has images"
_PRICES = "tests/launcher/cost/test_prices.py, which has a price list"
_ENDPOINTS = "tests/launcher/serving/test_rehearsals.py, which has trained models"
VERBS = {
    "init": Verb(["src", "--yes", "--force"], ["nowhere", "--yes"], ExitCode.USAGE, torch_script),
    "validate": Verb([], ["nowhere.yaml"], ExitCode.JOB_FILE_REFUSED),
    "plan": Verb([], ["--set", "compute.max_rnu=1"], ExitCode.JOB_FILE_REFUSED),
    "export": Verb(["--to", "pipeline"], ["--to", "make"], ExitCode.USAGE),
    "scale": Verb(
        ["--step-time", "0.373", "--parameters", "335M", "--batch", "64", "--hosts", "1,2"],
        ["--hosts", "0"],
        ExitCode.USAGE,
    ),
    "schema": Verb([], ["--output", "nowhere/schema.json"], ExitCode.ENVIRONMENT),
    "preflight": Verb(["--ignore", "SMDP815"], ["nowhere.yaml"], ExitCode.JOB_FILE_REFUSED, cloud),
    "launch": Verb([*HERE], [*HERE, "--data", "train=nowhere"], ExitCode.JOB_FILE_REFUSED),
    "probe": Verb(None, ["--local", "--hosts", "2"], ExitCode.ENVIRONMENT, elsewhere=_LINKS),
    "rehearse spot": Verb(["--at", "@5", "--for", "1"], _TWICE, ExitCode.USAGE, counting_job),
    "rehearse resume": Verb(["--at", "@5"], _TWICE, ExitCode.USAGE, counting_job),
    "rehearse kill": Verb([], _TWICE, ExitCode.USAGE, counting_job),
    "rehearse slow": Verb(None, ["--for", "1", *HERE[1:]], ExitCode.REHEARSAL_FAILED, counting_job, elsewhere=_TORCH),
    "rehearse hang": Verb(None, _TWICE, ExitCode.USAGE, counting_job, elsewhere=_HANGS),
    "rehearse late": Verb(["--for", "1"], ["--at", "@5"], ExitCode.USAGE, counting_job),
    "rehearse throttle": Verb(["--for", "1"], _TWICE, ExitCode.USAGE, counting_job),
    "rehearse slow-input": Verb(None, ["--rate", "none"], ExitCode.USAGE, counting_job, elsewhere=_INPUT),
    "rehearse expire": Verb(["--for", "1"], _TWICE, ExitCode.USAGE, counting_job),
    "rehearse slow-start": Verb(None, [], ExitCode.USAGE, elsewhere=_ENDPOINTS),
    "rehearse crash": Verb(None, [], ExitCode.USAGE, elsewhere=_ENDPOINTS),
    "rehearse overload": Verb(None, [], ExitCode.USAGE, elsewhere=_ENDPOINTS),
    "follow": Verb([], ["--timeout", "0"], ExitCode.WAIT_TIMED_OUT, ended_job),
    "status": Verb([], ["no-such-job", "--region", "us-east-1"], ExitCode.ENVIRONMENT, ended_job),
    "trials": Verb([], ["no-such-sweep"], ExitCode.REFUSED, ended_sweep),
    "logs": Verb([], ["--grep", "("], ExitCode.USAGE, ended_job),
    "metrics": Verb([], ["--listen", "nowhere:port"], ExitCode.USAGE, ended_job),
    "report": Verb(["--output", "run.html"], ["--output", "nowhere/run.html"], ExitCode.ENVIRONMENT, ended_job),
    "diagnose": Verb([], ["--log", "nowhere.log"], ExitCode.ENVIRONMENT, ended_job),
    "size": Verb(["--bytes-per-second", "500MB", "--data-size", "1TB"], ["--hosts", "0"], ExitCode.USAGE, ended_job),
    "compare": Verb(None, ["one", "two", "--region", "us-east-1"], ExitCode.ENVIRONMENT),
    "list": Verb([], ["--limit"], ExitCode.USAGE, ended_job),
    "cost": Verb([], ["--tag", "team"], ExitCode.USAGE, ended_job),
    "stop": Verb([], ["no-such-job", "--region", "us-east-1"], ExitCode.ENVIRONMENT, running_job),
    "resume": Verb([], ["no-such-job", "--region", "us-east-1"], ExitCode.ENVIRONMENT, cut_off_job),
    "download": Verb([], ["no-such-job", "--region", "us-east-1"], ExitCode.ENVIRONMENT, ended_job),
    "checkpoints": Verb(["--verify"], ["no-such-job", "--region", "us-east-1"], ExitCode.ENVIRONMENT, cut_off_job),
    "deploy": Verb(["--local"], ["--ttl", "soon"], ExitCode.USAGE, trained_model, after=("undeploy",)),
    "invoke": Verb(["request.json"], ["nowhere.json"], ExitCode.ENVIRONMENT, served_model),
    "endpoints": Verb([], ["--limit", "0"], ExitCode.USAGE, served_model),
    "undeploy": Verb([], ["no-such-endpoint"], ExitCode.REFUSED, served_model),
    "local up": Verb([], ["--usr"], ExitCode.USAGE, after=("local", "down")),
    "local down": Verb([], ["--grace", "-1"], ExitCode.USAGE, running_job),
    "local status": Verb([], ["--usr"], ExitCode.USAGE, ended_job),
    "doctor": Verb([], ["--json", "--report"], ExitCode.USAGE),
    "explain": Verb(["SMDP301"], ["SMDP999"], ExitCode.USAGE),
    "image build": Verb(None, ["--wheels", "nowhere"], ExitCode.USAGE, elsewhere=_IMAGES),
    "image push": Verb(None, ["no-such-image:1"], ExitCode.ENVIRONMENT, elsewhere=_IMAGES),
    "image inspect": Verb([], ["127.0.0.1:1/nothing:here"], ExitCode.SERVICE, registry),
    "catalog instances": Verb([], ["--policy", "lax"], ExitCode.USAGE),
    "catalog frameworks": Verb([], ["--engine", "gloo"], ExitCode.USAGE),
    "catalog images": Verb(["--region", "eu-west-1"], [], ExitCode.USAGE),
    "catalog prices": Verb(None, ["--region", "us-east-1"], ExitCode.REFUSED, elsewhere=_PRICES),
    "completion": Verb(["bash"], ["tcsh"], ExitCode.USAGE),
}


def run(place: Place, name: str, chance: random.Random) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield each form of a subcommand with its leftovers."""
    verb, words = VERBS[name], name.split()
    if verb.usual is not None:
        with verb.given(place) as more:
            place.run(*words, *verb.usual, *more)
        yield from _reported(place, verb, "usual")
    with verb.given(place):
        place.run(*words, *verb.failing, code=verb.code)
    yield from _reported(place, verb, "failing")
    with verb.given(place) as more:
        arguments = verb.failing if verb.usual is None else [*verb.usual, *more]
        delay = chance.uniform(0.05, _LATEST)
        with place.start([*words, *arguments]) as running:
            time.sleep(delay)
            running.send_signal(signal.SIGINT)
            output, _ = running.communicate(timeout=120)
    # Python itself reports an interrupt during its start, with 1 if it comes while `site` is imported.
    usual = running.returncode in {*ExitCode, -signal.SIGINT} - {ExitCode.BUG}
    assert usual or "init_import_site" in output, f"{name} after {delay} s: {running.returncode}\n{output}"
    yield from _reported(place, verb, f"interrupted after {delay:.2f} s, code {running.returncode}")
    if name == "launch":
        yield "interrupted while its job waits", _interrupted_job(place)


def _reported(place: Place, verb: Verb, form: str) -> Iterator[tuple[str, dict[str, list[str]]]]:
    if verb.after:
        place.run(*verb.after)
    yield form, place.settled()


def _interrupted_job(place: Place) -> dict[str, list[str]]:
    place.write(WAITS)
    with place.start(["launch", *HERE]) as running:
        assert running.stdout is not None
        assert any("| waiting" in line for line in running.stdout)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)
    assert running.returncode == ExitCode.JOB_STOPPED
    place.write(TRAINS)
    return place.settled()


def main() -> None:
    folder, seed, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    chance = random.Random(seed)
    reported: dict[str, list[Any]] = {}
    for name in names:
        place = Place(folder / name.replace(" ", "-"))
        reported[name] = []
        try:
            reported[name] += [[form, left] for form, left in run(place, name, chance)]
        except AssertionError as error:  # run the other subcommands too
            reported[name].append(["broken", str(error)])
    sys.stdout.write(json.dumps(reported) + "\n")


if __name__ == "__main__":
    main()
