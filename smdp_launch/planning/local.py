"""What a run on this machine changes in the request, and what it cannot do."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from smdp_launch.catalog import faults, not_simulated
from smdp_launch.catalog.faults import Kind
from smdp_launch.catalog.local_cloud import THIS_MACHINE
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.plan import LocalRun
from smdp_launch.request.batch import workers_per_host
from smdp_launch.request.build import PLAN_TAG, Request, plan_hash
from smdp_launch.source.scan import SourceTree

#: Tells the entrypoint how many workers to start where there are no GPUs to count.
WORKERS_VARIABLE = "SMDP_WORKERS_PER_HOST"

#: Tells the local cloud to run the hosts from the request's image.
HOSTS_VARIABLE = "SMDP_LOCAL_HOSTS"

#: Tells the local cloud how fast each host's link is to be.
NETWORK_VARIABLE = "SMDP_LOCAL_NETWORK"

#: Tells the local cloud to have CUDA imitated; nothing on AWS reads it.
CUDA_VARIABLE = "SMDP_LOCAL_CUDA_ON_CPU"


def local_request(request: Request, source: SourceTree, local: LocalRun) -> Request:
    """The request as the local cloud can serve it; ``not_honoured`` tells the person what that leaves out."""
    resources = dict(request["ResourceConfig"])
    for preferred in resources.pop("InstancePreferences", [])[:1]:
        resources["InstanceType"] = preferred["InstanceType"]
    changed = request | {
        "ResourceConfig": resources | {"InstanceCount": local.hosts},
        "Environment": request.get("Environment", {}) | _environment(local),
    }
    if "InputDataConfig" in request:
        changed["InputDataConfig"] = [_local_channel(one, local) for one in request["InputDataConfig"]]
    tags = [one for one in request["Tags"] if one["Key"] != PLAN_TAG]
    return changed | {"Tags": [*tags, {"Key": PLAN_TAG, "Value": plan_hash(changed, source)}]}


def _environment(local: LocalRun) -> dict[str, str]:
    hosts = {HOSTS_VARIABLE: "containers"} if local.containers else {}
    network = {NETWORK_VARIABLE: local.network} if local.network is not None else {}
    fault = {faults.VARIABLE: local.fault.to_text()} if local.fault is not None else {}
    cuda = {CUDA_VARIABLE: "1"} if local.cuda_on_cpu else {}
    return {WORKERS_VARIABLE: str(local.workers_per_host), **hosts, **network, **cuda, **fault}


def not_honoured(
    spec: JobSpec,
    request: Request,
    hosts: int,
    workers: int,
    *,
    containers: bool,
    rehearses: Kind | None = None,
) -> Iterator[str]:
    """One sentence for each thing in the job that a run of ``hosts`` x ``workers`` here cannot do."""
    compute = spec.compute
    asked = f"{compute.instance_count} x {compute.instance_type}"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield (
        f"{asked}, {compute.instance_count * workers_per_host(spec)} GPUs: here {hosts * workers} workers share this"
        " machine's CPUs"
    )
    if containers:
        yield "the internet: containers reach it through an HTTP proxy alone"
    else:
        yield f"the image: the script runs with Python {python} and the packages installed here"
    yield f"role {spec.role.rsplit('/', 1)[-1]}, region {spec.region}, volumes of {compute.volume_gb} GB"
    if spec.engine == "smdistributed":
        yield "engine smdistributed: AWS's library is not on this machine, a script that imports it will fail"
    yield from _channels_not_honoured(spec)
    yield from _settings_not_simulated(request, rehearses)


def _channels_not_honoured(spec: JobSpec) -> Iterator[str]:
    s3 = {name: one for name, one in spec.channels.items() if isinstance(one, S3Channel)}
    modes = sorted(f"{name} ({one.mode})" for name, one in s3.items() if one.mode != "File")
    if modes:
        yield f"input modes of {', '.join(modes)}: the data is copied as in File mode"
    manifests = sorted(f"{name} ({one.data_type})" for name, one in s3.items() if one.data_type != "S3Prefix")
    if manifests:
        yield f"manifests of {', '.join(manifests)}: the channel gets the local data as it is"


def _settings_not_simulated(request: Request, rehearses: Kind | None) -> Iterator[str]:
    for field in not_simulated.given(request):
        if rehearses != "spot" or field.path != not_simulated.SPOT:
            yield f"{field.setting or field.path}: {field.reason}"


def _local_channel(channel: Request, local: LocalRun) -> Request:
    """A prefix in a bucket, read as files, or a folder in place of a file system's."""
    if "FileSystemDataSource" in channel["DataSource"]:
        return channel | {"DataSource": {"FileSystemDataSource": _local_folder(channel, local)}}
    source = channel["DataSource"]["S3DataSource"]
    kept = {name: value for name, value in source.items() if name != "AttributeNames"}
    mode = channel.get("InputMode", "File")
    return channel | {
        "DataSource": {"S3DataSource": kept | {"S3DataType": "S3Prefix"}},
        "InputMode": "File" if mode == "Pipe" else mode,
    }


def _local_folder(channel: Request, local: LocalRun) -> Request:
    """What was named for the channel; else the local cloud knows the file system."""
    source: Request = channel["DataSource"]["FileSystemDataSource"]
    folder = local.data.get(channel["ChannelName"])
    if folder is None:
        return source
    return source | {"FileSystemId": THIS_MACHINE, "DirectoryPath": str(folder.resolve())}


def without_namespaces(spec: JobSpec, reason: str) -> Iterator[str]:
    """What a run cannot do because its hosts have no namespaces, for a reason."""
    yield f"hosts of their own: {reason}"
    systems = (FsxChannel, EfsChannel)
    protected = [name for name, one in spec.channels.items() if isinstance(one, systems) and one.access == "ro"]
    if protected:
        yield f"access of {', '.join(sorted(protected))}: such hosts can write to the folders"
