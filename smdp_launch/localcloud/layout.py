"""The files below a state folder, and the creation of such a folder.

server.lock     held by the server while it runs
server.json     address and credentials of the server (0600)
server.log      output of the server
clients.lock    shared by all processes that need a server
spawn.lock      held while a server is being started
shutdown.lock   held while a server is being ended, and by each job during its creation
s3/BUCKET/...   objects, see `objects`
jobs/NAME/      one folder for each job, see `JobFolder`
endpoints/NAME/ one folder for each endpoint, see `EndpointFolder`
endpoint-logs/REGION/NAME/VARIANT/   the log streams of an endpoint, which stay when the endpoint is deleted
transforms/NAME/ one folder for each transform job, see `TransformFolder`
transform-logs/REGION/NAME/          the log streams of a transform job
tunings/NAME/   one folder for each tuning job, see `TuningFolder`
resources/      models and endpoint configurations, see `services.serving.resources`
account.yaml    the account, see `account`; the user writes it
announced.json  exists while the server must stay without clients and jobs
refusal.json    the calls that are refused now, see `injected_refusals`; refused.json counts them
registry/       images and repositories, created on first use
pip-cache/      what pip has downloaded for the hosts, which install it again in each run
version         the version of this layout, see `VERSION`
sagemaker/      config.yaml, the defaults of the SageMaker SDK, see `sdk_defaults`
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
from smdp_launch.saved_versions import check_folder_version, write_folder_version

#: Version of these files; raised when an older smdp-launch would read them wrongly.
VERSION = 1
ACCOUNT_FILE = "account.yaml"  # see `account`
LOG_SUFFIX = ".jsonl"  # of the file of a log stream

JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # the service's own pattern


@dataclass(frozen=True)
class StateFolder:
    root: Path

    @classmethod
    def at(cls, path: Path) -> StateFolder:
        """Resolve links above the folder, once. The folder itself must not be a link, see `private_files`."""
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
    def shutdown_lock(self) -> Path:
        return self.root / "shutdown.lock"

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
        """Request bodies while they are received; emptied when a server starts."""
        return self.root / "spool"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    @property
    def pip_cache(self) -> Path:
        return self.root / "pip-cache"

    @property
    def sdk_defaults(self) -> Path:
        return self.root / "sagemaker" / "config.yaml"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def endpoints(self) -> Path:
        return self.root / "endpoints"

    @property
    def endpoint_logs(self) -> Path:
        return self.root / "endpoint-logs"

    @property
    def transforms(self) -> Path:
        return self.root / "transforms"

    @property
    def transform_logs(self) -> Path:
        return self.root / "transform-logs"

    @property
    def tunings(self) -> Path:
        return self.root / "tunings"

    @property
    def resources(self) -> Path:
        return self.root / "resources"

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
        """Whether the server must stay without clients and jobs. An announcement ends when this machine restarts."""
        mark = read_json(self.announced)
        return bool(mark) and mark.get("boot") == _boot()

    def announce(self) -> None:
        write_json(self.announced, {"boot": _boot()})

    def job_folders(self) -> Iterator[JobFolder]:
        return (JobFolder(path) for path in _folders(self.jobs))

    def endpoint_folders(self) -> Iterator[EndpointFolder]:
        """None in a folder that an older version has created."""
        return (EndpointFolder(path) for path in _folders(self.endpoints))

    def transform_folders(self) -> Iterator[TransformFolder]:
        return (TransformFolder(path) for path in _folders(self.transforms))

    def tuning_folders(self) -> Iterator[TuningFolder]:
        return (TuningFolder(path) for path in _folders(self.tunings))

    def check_version(self) -> None:
        """Raises NewerVersion."""
        check_folder_version(self.root, VERSION)

    def prepare(self) -> None:
        """Create the folder, private to the user and ignored by git, unless it exists. Raises NotPrivate and
        NewerVersion."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        make_folder(self.root)
        self.check_version()
        write_folder_version(self.root, VERSION)
        ignore = self.root / ".gitignore"
        if not ignore.exists():
            self.root.chmod(0o700)
            write_bytes(ignore, b"*\n")
        serving = (self.endpoints, self.endpoint_logs, self.transforms, self.transform_logs, self.resources)
        for folder in (self.objects, self.jobs, self.spool, self.tunings, *serving):
            make_folder(folder)


def _folders(root: Path) -> list[Path]:
    """The folders below `root`, without those that are being created or removed."""
    try:
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    except FileNotFoundError:
        return []


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


@dataclass(frozen=True)
class SupervisedFolder:
    """The files of what has a supervisor of its own: a job, an endpoint, a transform job or a tuning job."""

    root: Path

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def state_folder(self) -> StateFolder:
        return StateFolder(self.root.parent.parent)

    @property
    def region_file(self) -> Path:
        return self.root / "place.json"

    @property
    def region(self) -> str:
        """The region of the request; jobs of older state folders have no `region_file` and are in the default one."""
        record = read_json(self.region_file)
        return str(record["region"]) if record else REGION

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def request(self) -> Path:
        """Of the call that created it; an endpoint has a `deployment` instead."""
        return self.root / "request.json"

    @property
    def stop(self) -> Path:
        """Exists once a stop was requested. Its `grace`, if present, is the seconds from SIGTERM to SIGKILL."""
        return self.root / "stop.json"

    @property
    def tags(self) -> Path:
        return self.root / "tags.json"

    @property
    def lock(self) -> Path:
        """Locked from before the folder is visible until its supervisor has exited."""
        return self.root / "supervisor.lock"

    @property
    def pid(self) -> Path:
        return self.root / "supervisor.pid"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "supervisor.log"

    @property
    def hosts(self) -> Path:
        """Trees of the simulated hosts; removed at the end."""
        return self.root / "hosts"


@dataclass(frozen=True)
class JobFolder(SupervisedFolder):
    """The files of one job. Each has one writer: the server writes `request`, `stop` and, once the supervisor has
    died, `state`; the supervisor writes the rest."""

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log_files(self) -> list[Path]:
        """One for each stream; none for a job that was deleted meanwhile."""
        try:
            return list(self.logs.glob(f"*{LOG_SUFFIX}"))
        except FileNotFoundError:
            return []

    @property
    def metrics(self) -> Path:
        """The values that the metric definitions found, one on each line."""
        return self.root / "metrics.jsonl"

    @property
    def readings(self) -> Path:
        """What the hosts have read from their channels, see `inputs.readings`."""
        return self.root / "readings.jsonl"

    @property
    def reserve(self) -> Path:
        """Allocated and empty, see `reserve`; removed when the disk was full or the job has ended."""
        return self.root / "reserve"

    @property
    def results(self) -> Path:
        """Exists where results could not be uploaded, see `results`."""
        return self.root / "results"


@dataclass(frozen=True)
class TuningFolder(SupervisedFolder):
    """The files of one tuning job. Its trials have folders of their own, as all training jobs. The server writes
    `request`, `stop`, `tags` and, once the supervisor has died, `state`; the supervisor writes the rest."""


@dataclass(frozen=True)
class EndpointFolder(SupervisedFolder):
    """The files of one endpoint. The server writes `deployment`, `stop`, `tags` and, once the supervisor has died,
    `state`; the supervisor writes the rest."""

    @property
    def deployment(self) -> Path:
        """What the endpoint must run, with copies of its configuration and models. UpdateEndpoint writes a new one,
        with a higher `generation`."""
        return self.root / "deployment.json"

    @property
    def models(self) -> Path:
        """The unpacked models, which the hosts' trees share; removed when the endpoint has ended."""
        return self.root / "models"

    @property
    def requests(self) -> Path:
        """Asynchronous requests that wait for their answers; exists once there was one."""
        return self.root / "requests"

    @property
    def logs(self) -> Path:
        return self.state_folder.endpoint_logs / self.region / self.name

    def principal(self, variant: str) -> str:
        """The name under which the variant's role makes calls; no training job can have it."""
        return f"endpoint/{self.name}/{variant}"


@dataclass(frozen=True)
class TransformFolder(EndpointFolder):
    """The files of one transform job, whose hosts serve its model as those of an endpoint do."""

    @property
    def logs(self) -> Path:
        """The folder of the log streams of all jobs: a stream's name begins with that of its job."""
        return self.state_folder.transform_logs / self.region

    def principal(self, _variant: str) -> str:
        return f"transform/{self.name}"
