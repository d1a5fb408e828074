"""Where everything lies below a state directory, and how such a directory is made.

server.lock     held by the server for its life          server.json    how to reach it (0600)
clients.lock    shared by all who need a server          spawn.lock     held while one is being started
going.lock      held while it is being ended, and by each job for the moment of its creation
server.log      output of the server                     s3/BUCKET/...  objects, see `objects`
jobs/NAME/      one folder a job, see `JobFolder`
account.yaml    what the account has, see `account`; the person's
announced.json  exists while the server is to stay without clients and jobs
refusal.json    which calls are refused for now, see `refusals`; refused.json counts them
registry/        images and repositories, once asked for
sagemaker/       config.yaml, defaults of the SageMaker SDK, see `sdk_defaults`
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.files import read_json, write_json
from smdp_launch.private_files import make_folder, write_bytes

LOG_SUFFIX = ".jsonl"  # of a stream's file

JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # the service's own pattern


@dataclass(frozen=True)
class StateFolder:
    root: Path

    @classmethod
    def at(cls, path: Path) -> StateFolder:
        """Links above the folder are followed now, for good; the folder itself may be none, see `private_files`."""
        place = Path(os.path.abspath(path))  # noqa: PTH100 (`resolve` would follow that last link too)
        return cls(place.parent.resolve() / place.name)

    @property
    def server_lock(self) -> Path:
        return self.root / "server.lock"

    @property
    def clients_lock(self) -> Path:
        return self.root / "clients.lock"

    @property
    def spawn_lock(self) -> Path:
        return self.root / "spawn.lock"

    @property
    def going_lock(self) -> Path:
        return self.root / "going.lock"

    @property
    def server_file(self) -> Path:
        return self.root / "server.json"

    @property
    def server_log(self) -> Path:
        return self.root / "server.log"

    @property
    def objects(self) -> Path:
        return self.root / "s3"

    @property
    def spool(self) -> Path:
        """Bodies on their way in; emptied when a server starts."""
        return self.root / "spool"

    @property
    def registry(self) -> Path:
        """Images and repositories; made when they are first asked for."""
        return self.root / "registry"

    @property
    def sdk_defaults(self) -> Path:
        return self.root / "sagemaker" / "config.yaml"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def refusal(self) -> Path:
        return self.root / "refusal.json"

    @property
    def refused(self) -> Path:
        return self.root / "refused.json"

    @property
    def announced(self) -> Path:
        return self.root / "announced.json"

    @property
    def is_announced(self) -> bool:
        """Whether somebody wants the server to stay; what was wanted before this machine started again is over."""
        mark = read_json(self.announced)
        return bool(mark) and mark.get("boot") == _boot()

    def announce(self) -> None:
        write_json(self.announced, {"boot": _boot()})

    def job_folders(self) -> Iterator[JobFolder]:
        for path in sorted(self.jobs.iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield JobFolder(path)

    def prepare(self) -> None:
        """Make the directory, private to the user and invisible to git, unless it is there. Raises NotPrivate."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        make_folder(self.root)
        ignore = self.root / ".gitignore"
        if not ignore.exists():
            self.root.chmod(0o700)
            write_bytes(ignore, b"*\n")
        for folder in (self.objects, self.jobs, self.spool):
            make_folder(folder)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class JobFolder:
    """Files of one job. Each has one writer: the server writes `request`, `stop` and, once the supervisor is
    dead, `state`; the supervisor writes the rest."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def state_folder(self) -> StateFolder:
        return StateFolder(self.root.parent.parent)

    @property
    def request(self) -> Path:
        return self.root / "request.json"

    @property
    def place(self) -> Path:
        return self.root / "place.json"

    @property
    def region(self) -> str:
        """That of the request; jobs of older state folders, which have no `place`, are in the default one."""
        record = read_json(self.place)
        return str(record["region"]) if record else REGION

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def stop(self) -> Path:
        """Exists once a stop has been asked for. Its `grace`, if it has one, is the seconds that the hosts get."""
        return self.root / "stop.json"

    @property
    def tags(self) -> Path:
        return self.root / "tags.json"

    @property
    def lock(self) -> Path:
        """Locked from before the job can be seen until its supervisor has ended."""
        return self.root / "supervisor.lock"

    @property
    def pid(self) -> Path:
        return self.root / "supervisor.pid"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log_files(self) -> list[Path]:
        """One for each stream; none of a job that was deleted meanwhile."""
        try:
            return list(self.logs.glob(f"*{LOG_SUFFIX}"))
        except FileNotFoundError:
            return []

    @property
    def metrics(self) -> Path:
        """What the metric definitions found, one value a line."""
        return self.root / "metrics.jsonl"

    @property
    def hosts(self) -> Path:
        """Trees of the simulated hosts; gone when the job has ended."""
        return self.root / "hosts"

    @property
    def reserve(self) -> Path:
        """Allocated and empty, see `reserve`; gone when the disk was full or the job has ended."""
        return self.root / "reserve"

    @property
    def results(self) -> Path:
        """Exists once results could not be uploaded, see `results`."""
        return self.root / "results"
