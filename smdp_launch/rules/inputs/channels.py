"""Input channels: settings that fit together, and what file systems need."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog.local_cloud import THIS_MACHINE
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.request.groups import host_count
from smdp_launch.request.toolkit import CODE_CHANNEL
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.vpc import NETWORK, is_in_vpc
from smdp_launch.units import all_of

#: FSx's own pattern for a mount name (botocore's model of fsx, LustreFileSystemMountName).
_MOUNT_NAME = re.compile(r"[A-Za-z0-9_-]{1,8}", re.ASCII)

# The most MiB/s of a file system, and of one client, in Bursting and Provisioned mode in most regions
# (docs.aws.amazon.com/efs/latest/ug/limits.html and performance.html, 2026-11-21).
_EFS_MIB_S = 3072
_EFS_HOST_MIB_S = 500


@rule("SMDP411", "channels", "network.subnets", "network.security_groups")
def file_systems_need_a_vpc(facts: Facts) -> Iterator[Problem]:
    systems = [(name, one) for name, one in facts.channels() if isinstance(one, FsxChannel | EfsChannel)]
    if not systems or is_in_vpc(facts.spec):
        return
    name, first = systems[0]
    kind, ports = ("fsx", "TCP 988 and 1018-1023") if isinstance(first, FsxChannel) else ("efs", "TCP 2049")
    others = f" (and {', '.join(one for one, _ in systems[1:])})" if len(systems) > 1 else ""
    message = f"channel {name}{others} is a file system in a VPC, but the job has no VPC"
    help_ = f"add {NETWORK} with the file system's subnet and a group that allows {ports}"
    yield Problem(("channels", name, kind), message, help_)


@rule("SMDP412", "channels")
def fsx_paths(facts: Facts) -> Iterator[Problem]:
    for name, channel in facts.channels():
        if not isinstance(channel, FsxChannel) or not facts.loaded.has("channels", name, "path"):
            continue
        if channel.fsx == THIS_MACHINE:
            continue
        first = _mount_name(channel)
        help_ = "write /MOUNTNAME/FOLDER; `aws fsx describe-file-systems` shows the mount name"
        at = ("channels", name, "path")
        if not first:
            message = "the root of FSx for Lustre cannot be mounted: the path must begin with the mount name"
            yield Problem(at, message, help_)
        elif not _MOUNT_NAME.fullmatch(first):
            message = (
                f'the path must begin with the mount name, at most 8 of A-Z, a-z, 0-9, _ and -, not with "{first}"'
            )
            yield Problem(at, message, help_)


@rule("SMDP412", "channels")
def mount_names_of_the_local_cloud(facts: Facts) -> Iterator[Problem]:
    for name, channel in facts.channels():
        known = facts.mount_names.get(name)
        if known is None or not isinstance(channel, FsxChannel):
            continue
        first = _mount_name(channel)
        if first != known and _MOUNT_NAME.fullmatch(first):
            message = (
                f'{channel.fsx} has the mount name "{known}" in the local cloud, but the path begins with "{first}"'
            )
            help_ = f"write /{known}/FOLDER, or `mount_name: {first}` in the local cloud's account.yaml"
            yield Problem(("channels", name, "path"), message, help_)


def _mount_name(channel: FsxChannel) -> str:
    return channel.path.lstrip("/").partition("/")[0]


@rule("SMDP415", "channels")
def modes_and_data_types(facts: Facts) -> Iterator[Problem]:
    for name, channel in facts.s3_channels("mode", "data_type"):
        mode, data_type = channel.mode, channel.data_type
        if data_type == "AugmentedManifestFile" and mode != "Pipe":
            message = f"an augmented manifest needs Pipe mode, but channel {name} uses {mode} mode"
            at = ("channels", name, "data_type")
            yield Problem(at, message, "write `mode: Pipe`", write={("channels", name, "mode"): "Pipe"})
        elif data_type == "ManifestFile" and mode == "FastFile":
            message = f"FastFile mode needs a prefix, but channel {name} names a manifest"
            yield Problem(("channels", name, "mode"), message, "write `mode: File`, or `data_type: S3Prefix`")


@rule("SMDP415", "channels")
def attributes_of_manifests(facts: Facts) -> Iterator[Problem]:
    for name, channel in facts.s3_channels("attributes", "data_type"):
        is_augmented = channel.data_type == "AugmentedManifestFile"
        if is_augmented and not channel.attributes:
            message = f"channel {name} is an augmented manifest, but names no attributes"
            help_ = "add `attributes:` with the attributes to read, such as [source-ref, label]"
            yield Problem(("channels", name, "data_type"), message, help_)
        elif channel.attributes is not None and not is_augmented:
            message = (
                f"attributes need an augmented manifest, but the data_type of channel {name} is {channel.data_type}"
            )
            help_ = "remove them, or write `data_type: AugmentedManifestFile` and `mode: Pipe`"
            yield Problem(("channels", name, "attributes"), message, help_, on_key=True)


@rule("SMDP415", "channels")
def settings_of_pipe_mode(facts: Facts) -> Iterator[Problem]:
    for name, channel in facts.s3_channels("mode", "shuffle", "compression", "record_wrapping", "distribution"):
        # With ShardedByS3Key the seed decides in every mode which host gets which objects.
        shuffles = channel.shuffle is not None and channel.distribution != "ShardedByS3Key"
        settings = {
            "shuffle": shuffles,
            "compression": channel.compression != "None",
            "record_wrapping": channel.record_wrapping != "None",
        }
        for key in (key for key, is_set in settings.items() if is_set and channel.mode != "Pipe"):
            message = f"{key} has an effect only in Pipe mode, but channel {name} uses {channel.mode} mode"
            help_ = "remove it, or write `mode: Pipe`"
            yield Problem(("channels", name, key), message, help_, on_key=True, remove=True)


@rule("SMDP418", "channels", "compute.instance_count", "compute.other_groups", severity=Severity.WARNING)
def efs_is_fast_enough(facts: Facts) -> Iterator[Problem]:
    """Whether the file system is as fast as all hosts together."""
    hosts = host_count(facts.spec)
    names = [name for name, channel in facts.channels() if isinstance(channel, EfsChannel)]
    # With a measured rate, SMDP428 decides.
    if not names or hosts * _EFS_HOST_MIB_S <= _EFS_MIB_S or facts.measured is not None:
        return
    message = (
        f"{hosts} hosts share the EFS of {all_of('channel', names)}, and outside Elastic mode EFS delivers"
        f" {_EFS_MIB_S} MiB/s to all of them, which is {_EFS_MIB_S // hosts} MiB/s for each host"
    )
    help_ = "use FSx for Lustre, or FastFile mode from S3; write `silence: [SMDP418]` if the throughput is enough"
    first, *others = (("channels", name, "efs") for name in names)
    yield Problem(first, message, help_, also=tuple(others))


@rule("SMDP420", "channels", "network.isolated")
def code_channel_is_reserved(facts: Facts) -> Iterator[Problem]:
    if facts.spec.network.isolated and CODE_CHANNEL in facts.spec.channels:
        message = f'the name "{CODE_CHANNEL}" is reserved: with `network.isolated` the source is sent as this channel'
        yield Problem(("channels", CODE_CHANNEL), message, "give the channel another name", on_key=True)


@rule("SMDP420", "channels")
def channel_names_are_distinct(facts: Facts) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name in facts.spec.channels:
        other = first.setdefault(name.upper(), name)
        if other != name:
            message = f"channels {other} and {name} use the same variable, SM_CHANNEL_{name.upper()}"
            yield Problem(("channels", name), message, "give one of them another name", on_key=True)


@rule("SMDP423", "channels", severity=Severity.WARNING)
def job_has_channels(facts: Facts) -> Iterator[Problem]:
    # The spec omits channels whose names are wrong.
    if not facts.document.data.get("channels"):
        help_ = "add `channels:`; if the script downloads its data itself, write `silence: [SMDP423]`"
        yield Problem(("channels",), "the job has no channels, so the script finds no data in /opt/ml/input", help_)


@rule("SMDP422", "channels", severity=Severity.WARNING)
def channels_are_readable_as_files(facts: Facts) -> Iterator[Problem]:
    # An augmented manifest needs Pipe mode.
    channels = {
        name: channel
        for name, channel in facts.s3_channels("mode", "data_type", "shuffle", "compression", "record_wrapping")
        if channel.mode == "Pipe" and channel.data_type != "AugmentedManifestFile"
    }
    if not channels:
        return
    pipes = "is a pipe" if len(channels) == 1 else "are pipes"
    message = f"{all_of('channel', list(channels))} in Pipe mode {pipes}, but PyTorch and TensorFlow 2 read files"
    # FastFile mode cannot read manifests.
    mode = "FastFile" if all(one.data_type == "S3Prefix" for one in channels.values()) else "File"
    what = "which reads the same objects as files" if mode == "FastFile" else "which copies the same objects first"
    wrapped = any(
        one.compression != "None" or one.record_wrapping != "None" or one.shuffle is not None
        for one in channels.values()
    )
    first, *others = (("channels", name, "mode") for name in channels)
    help_ = f"write `mode: {mode}`, {what}, or `silence: [SMDP422]`"
    yield Problem(first, message, help_, also=tuple(others), replacement=None if wrapped else mode)
