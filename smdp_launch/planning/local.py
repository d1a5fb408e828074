"""The request of a local run, and the parts of a job that a local run does not simulate."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from smdp_launch.catalog import faults, not_simulated
from smdp_launch.catalog.engines import TORCH_DISTRIBUTED, Engine
from smdp_launch.catalog.faults import Kind
from smdp_launch.catalog.frameworks import TITLES
from smdp_launch.catalog.local_cloud import OWN_NETWORK, THIS_MACHINE
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.host_counts import hosts_by_type
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.planning.plan import LocalRun
from smdp_launch.request.batch import on_cpus, workers_per_host
from smdp_launch.request.build import PLAN_TAG, Request, plan_hash
from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.program import Program
from smdp_launch.units import count, listed

#: The number of workers that the entrypoint starts, because there are no GPUs to count.
WORKERS_VARIABLE = "SMDP_WORKERS_PER_HOST"

#: Set if the local cloud runs the hosts from the request's image.
HOSTS_VARIABLE = "SMDP_LOCAL_HOSTS"

#: The speed of each host's link in the local cloud.
NETWORK_VARIABLE = "SMDP_LOCAL_NETWORK"

#: Set if the local cloud emulates CUDA; nothing on AWS reads it.
CUDA_VARIABLE = "SMDP_LOCAL_CUDA_ON_CPU"

_PACKAGES = {"pytorch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu")}


def local_request(request: Request, source: SourceTree, local: LocalRun) -> Request:
    """The request for the local cloud. ``not_simulated_locally`` lists the parts of the job that it leaves out."""
    resources = dict(request["ResourceConfig"])
    for preferred in resources.pop("InstancePreferences", [])[:1]:
        resources["InstanceType"] = preferred["InstanceType"]
    if "InstanceGroups" in resources:
        training, *others = resources["InstanceGroups"]
        counts = [one | {"InstanceCount": local.other_hosts[one["InstanceGroupName"]]} for one in others]
        resources["InstanceGroups"] = [training | {"InstanceCount": local.hosts}, *counts]
    else:
        resources["InstanceCount"] = local.hosts
    changed = request | {
        "ResourceConfig": resources,
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


def not_simulated_locally(
    spec: JobSpec,
    request: Request,
    hosts: int,
    workers: int,
    options: LocalRequest,
    *,
    inputs_problem: Callable[[], str | None] = lambda: None,
    engine_missing: Callable[[], str | None] = lambda: None,
) -> Iterator[str]:
    """One sentence for each part of the job that a local run of ``hosts`` x ``workers`` does not simulate.

    ``inputs_problem`` returns the reason why hosts cannot read objects while they train; None if they can.
    ``engine_missing`` returns the command that installs the native engine; None if it is installed.
    """
    compute = spec.compute
    types = hosts_by_type(request["ResourceConfig"]) or {compute.instance_type: compute.instance_count}
    requested = listed([f"{number} x {name}" for name, number in types.items()])
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    gpus = "" if on_cpus(spec) else f", {count(compute.instance_count * workers_per_host(spec), 'GPU')}"
    yield f"{requested}{gpus}: this machine's CPUs run {count(hosts * workers, 'worker')} instead"
    if options.containers:
        yield "the internet: containers reach it only through an HTTP proxy"
    else:
        yield f"the image: the script runs with Python {python} and the locally installed packages{_version(spec)}"
    yield f"role {spec.role.rsplit('/', 1)[-1]}, region {spec.region}, volumes of {compute.volume_gb} GB"
    if spec.engine == "smdistributed":
        yield _library_locally(options, engine_missing)
    if spec.engine == "nccl" and options.cuda_on_cpu:
        yield "NCCL: the backend nccl is smdp-engine's smddp, or Gloo without it (docs/how-to/torch/nccl.md)"
    elif spec.engine == "nccl":
        yield "NCCL: a script that asks for it fails without GPUs; --cuda-on-cpu gives it another backend"
    if spec.sweep is not None and spec.sweep.strategy in ("bayesian", "hyperband") and options.rehearses is None:
        yield f"sweep.strategy {spec.sweep.strategy}: the values of trials are drawn at random, as with random"
    yield from _channels_not_simulated(spec, inputs_problem)
    yield from _settings_not_simulated(request, options.rehearses)


def _version(spec: JobSpec) -> str:
    """The version of the framework that is installed locally, if it differs from the job's; else an empty text."""
    wanted = spec.framework.version.split(".")[:2]
    for package in _PACKAGES[spec.framework.name]:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.version(package).partition("+")[0]
            if installed.split(".")[: len(wanted)] != wanted:
                return f": {TITLES[spec.framework.name]} {installed} instead of {spec.framework.version}"
    return ""


def needs_gpus(program: Program, engine: Engine, options: LocalRequest) -> Iterator[str]:
    """The Trainer of Hugging Face, which with the data parallel library puts each worker on a GPU."""
    names = program.names
    handles = "is_available" in names or options.cuda_on_cpu or options.containers
    if engine in TORCH_DISTRIBUTED or handles or not {"transformers", "TrainingArguments"} <= names:
        return
    yield "GPUs: the Trainer of Hugging Face fails without them under the data parallel library; pass --cuda-on-cpu"


def _library_locally(options: LocalRequest, engine_missing: Callable[[], str | None]) -> str:
    """What a local run uses in place of AWS's library."""
    if options.containers:
        return "engine smdistributed: the script uses the library of the image, and AWS's library needs GPUs"
    install = engine_missing()
    if install is None:
        return "engine smdistributed: the native engine replaces AWS's library and sums on the CPUs"
    return (
        "engine smdistributed: neither AWS's library nor the native engine is installed locally, so a script that "
        f"imports the library fails; to install the engine, run: {install}"
    )


def network_not_checked(spec: JobSpec, network: str | None) -> Iterator[str]:
    """The requirement of the network, if ``network`` gives the hosts no links of a known speed."""
    if spec.network.require is not None and network in (None, OWN_NETWORK):
        yield f"network.require {spec.network.require}: the links of the hosts have no speed; pass --network SPEED"


def _channels_not_simulated(spec: JobSpec, inputs_problem: Callable[[], str | None]) -> Iterator[str]:
    s3 = {name: one for name, one in spec.channels.items() if isinstance(one, S3Channel)}
    streamed = sorted(name for name, one in s3.items() if one.mode == "FastFile")
    problem = inputs_problem() if streamed else None
    if problem is not None:
        yield f"FastFile mode of {', '.join(streamed)}: the data is copied as in File mode ({problem})"
    manifests = sorted(f"{name} ({one.data_type})" for name, one in s3.items() if one.data_type != "S3Prefix")
    if manifests:
        yield f"manifests of {', '.join(manifests)}: the channel gets the local data as it is"


def _settings_not_simulated(request: Request, rehearses: Kind | None) -> Iterator[str]:
    for field in not_simulated.requested(request):
        if rehearses != "spot" or field.path != not_simulated.SPOT:
            yield f"{field.setting or field.path}: {field.reason}"


def _local_channel(channel: Request, local: LocalRun) -> Request:
    """The channel with an S3 prefix that is read as files, or with a local folder in place of a file system."""
    if "FileSystemDataSource" in channel["DataSource"]:
        return channel | {"DataSource": {"FileSystemDataSource": _local_folder(channel, local)}}
    source = channel["DataSource"]["S3DataSource"]
    local_source = {name: value for name, value in source.items() if name != "AttributeNames"}
    return channel | {"DataSource": {"S3DataSource": local_source | {"S3DataType": "S3Prefix"}}}


def _local_folder(channel: Request, local: LocalRun) -> Request:
    """The local folder of the channel, or its own file system if no folder is set."""
    source: Request = channel["DataSource"]["FileSystemDataSource"]
    folder = local.data.get(channel["ChannelName"])
    if folder is None:
        return source
    return source | {"FileSystemId": THIS_MACHINE, "DirectoryPath": str(folder.resolve())}


def without_namespaces(spec: JobSpec, reason: str) -> Iterator[str]:
    """The parts that are not simulated if hosts have no namespaces of their own, because of ``reason``."""
    yield (
        "separate hosts: they share /opt/ml, /tmp, /dev/shm, the host name and the processes of this machine, so "
        f"scripts must use the SM_* variables and SMDP_CHECKPOINT_DIR; {reason}"
    )
    systems = (FsxChannel, EfsChannel)
    protected = [name for name, one in spec.channels.items() if isinstance(one, systems) and one.access == "ro"]
    if protected:
        yield f"read-only access of {', '.join(sorted(protected))}: the hosts can write to the folders"
