"""Input channels: what goes together in one, and what a kind of file system needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog.local_cloud import THIS_MACHINE
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.request.build import CODE_CHANNEL
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.units import all_of

#: FSx's own pattern for a mount name (botocore's model of fsx, LustreFileSystemMountName).
_MOUNT_NAME = re.compile(r"[A-Za-z0-9_-]{1,8}", re.ASCII)

# MiB/s that a file system gives to all clients, and a client gets at most, in Bursting and Provisioned mode in most
# regions (docs.aws.amazon.com/efs/latest/ug/limits.html and performance.html, 2026-11-21).
_EFS_MIB_S = 3072
_EFS_HOST_MIB_S = 500


@rule("SMDP411", "channels", "network.subnets", "network.security_groups")
def file_systems_need_a_vpc(facts: Facts) -> Iterator[Finding]:
    network = facts.spec.network
    systems = [(name, one) for name, one in facts.channels() if isinstance(one, FsxChannel | EfsChannel)]
    if not systems or network.subnets is not None or network.security_groups is not None:
        return
    name, first = systems[0]
    kind, ports = ("fsx", "TCP 988 and 1018-1023") if isinstance(first, FsxChannel) else ("efs", "TCP 2049")
    others = f" (and {', '.join(one for one, _ in systems[1:])})" if len(systems) > 1 else ""
    message = f"channel {name}{others} is a file system in a VPC, and the job is in none"
    help_ = (
        "add `network: {subnets: [SUBNET], security_groups: [GROUP]}` with the file system's subnet and a group that"
        f" allows {ports}"
    )
    yield Finding(("channels", name, kind), message, help_)


@rule("SMDP412", "channels")
def fsx_paths(facts: Facts) -> Iterator[Finding]:
    for name, channel in facts.channels():
        if not isinstance(channel, FsxChannel) or not facts.loaded.has("channels", name, "path"):
            continue
        if channel.fsx == THIS_MACHINE:
            continue
        first = _mount_name(channel)
        help_ = "write /MOUNTNAME/FOLDER; `aws fsx describe-file-systems` tells the mount name"
        at = ("channels", name, "path")
        if not first:
            yield Finding(at, "the root of FSx for Lustre cannot be mounted: a path begins with its mount name", help_)
        elif not _MOUNT_NAME.fullmatch(first):
            message = f'"{first}" is no mount name, which has at most 8 letters and digits, and a path begins with it'
            yield Finding(at, message, help_)


@rule("SMDP412", "channels")
def mount_names_of_the_local_cloud(facts: Facts) -> Iterator[Finding]:
    for name, channel in facts.channels():
        known = facts.mount_names.get(name)
        if known is None or not isinstance(channel, FsxChannel):
            continue
        first = _mount_name(channel)
        if first != known and _MOUNT_NAME.fullmatch(first):
            message = (
                f'{channel.fsx} has the mount name "{known}" in the local cloud, and the path begins with "{first}"'
            )
            help_ = f"write /{known}/FOLDER, or `mount_name: {first}` in the local cloud's account.yaml"
            yield Finding(("channels", name, "path"), message, help_)


def _mount_name(channel: FsxChannel) -> str:
    return channel.path.lstrip("/").partition("/")[0]


@rule("SMDP415", "channels")
def modes_and_data_types(facts: Facts) -> Iterator[Finding]:
    for name, channel in facts.s3_channels("mode", "data_type"):
        mode, data_type = channel.mode, channel.data_type
        if data_type == "AugmentedManifestFile" and mode != "Pipe":
            message = f"an augmented manifest is read in Pipe mode only, and channel {name} is in {mode} mode"
            at = ("channels", name, "data_type")
            yield Finding(at, message, "write `mode: Pipe`", write={("channels", name, "mode"): "Pipe"})
        elif data_type == "ManifestFile" and mode == "FastFile":
            message = f"FastFile mode reads a prefix, and channel {name} names a manifest"
            yield Finding(("channels", name, "mode"), message, "write `mode: File`, or `data_type: S3Prefix`")


@rule("SMDP415", "channels")
def attributes_of_manifests(facts: Facts) -> Iterator[Finding]:
    for name, channel in facts.s3_channels("attributes", "data_type"):
        augmented = channel.data_type == "AugmentedManifestFile"
        if augmented and not channel.attributes:
            message = f"channel {name} is an augmented manifest, and no attribute of it is named"
            help_ = "add `attributes:` with those to read, such as [source-ref, label]"
            yield Finding(("channels", name, "data_type"), message, help_)
        elif channel.attributes is not None and not augmented:
            message = f"attributes are those of an augmented manifest, and channel {name} is an {channel.data_type}"
            help_ = "leave them out, or write `data_type: AugmentedManifestFile` and `mode: Pipe`"
            yield Finding(("channels", name, "attributes"), message, help_, on_key=True)


@rule("SMDP415", "channels")
def settings_of_pipe_mode(facts: Facts) -> Iterator[Finding]:
    for name, channel in facts.s3_channels("mode", "shuffle", "compression", "record_wrapping", "distribution"):
        # Among several hosts that share the objects out, the seed says who gets which.
        shuffles = channel.shuffle is not None and channel.distribution != "ShardedByS3Key"
        given = {
            "shuffle": shuffles,
            "compression": channel.compression != "None",
            "record_wrapping": channel.record_wrapping != "None",
        }
        for key in (key for key, is_given in given.items() if is_given and channel.mode != "Pipe"):
            message = f"{key} takes effect in Pipe mode only, and channel {name} is in {channel.mode} mode"
            help_ = "leave it out, or write `mode: Pipe`"
            yield Finding(("channels", name, key), message, help_, on_key=True, remove=True)


@rule("SMDP418", "channels", "compute.instance_count", severity=Severity.WARNING)
def efs_advice(facts: Facts) -> Iterator[Finding]:
    """Where the hosts together can read faster than the file system gives; for fewer, EFS is the user's choice."""
    hosts = facts.spec.compute.instance_count
    names = [name for name, channel in facts.channels() if isinstance(channel, EfsChannel)]
    if not names or hosts * _EFS_HOST_MIB_S <= _EFS_MIB_S:
        return
    message = (
        f"{hosts} hosts share the EFS of {all_of('channel', names)}, and outside Elastic mode EFS gives all of them"
        f" {_EFS_MIB_S} MiB/s, which is {_EFS_MIB_S // hosts} MiB/s each"
    )
    help_ = "use FSx for Lustre, or FastFile mode from S3; `silence: [SMDP418]` if the throughput suffices"
    first, *others = (("channels", name, "efs") for name in names)
    yield Finding(first, message, help_, also=tuple(others))


@rule("SMDP420", "channels", "network.isolated")
def channel_of_the_code(facts: Facts) -> Iterator[Finding]:
    if facts.spec.network.isolated and CODE_CHANNEL in facts.spec.channels:
        message = f'without a network the source comes by a channel "{CODE_CHANNEL}", so the name is taken'
        yield Finding(("channels", CODE_CHANNEL), message, "give the channel another name", on_key=True)


@rule("SMDP420", "channels")
def names_apart(facts: Facts) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for name in facts.spec.channels:
        other = first.setdefault(name.upper(), name)
        if other != name:
            message = f"channels {other} and {name} both reach the script as SM_CHANNEL_{name.upper()}"
            yield Finding(("channels", name), message, "give one of them another name", on_key=True)


@rule("SMDP423", "channels", severity=Severity.WARNING)
def jobs_without_channels(facts: Facts) -> Iterator[Finding]:
    # A channel whose name is wrong is not in the spec.
    if not facts.document.data.get("channels"):
        help_ = "add `channels:`; if the script fetches its data itself, `silence: [SMDP423]`"
        yield Finding(("channels",), "the job has no channel, so the script finds no data in /opt/ml/input", help_)


@rule("SMDP422", "channels", severity=Severity.WARNING)
def pipe_mode_advice(facts: Facts) -> Iterator[Finding]:
    # An augmented manifest can be read in no other mode.
    channels = {
        name: channel
        for name, channel in facts.s3_channels("mode", "data_type", "shuffle", "compression", "record_wrapping")
        if channel.mode == "Pipe" and channel.data_type != "AugmentedManifestFile"
    }
    if not channels:
        return
    pipes = "is a pipe" if len(channels) == 1 else "are pipes"
    message = f"{all_of('channel', list(channels))} in Pipe mode {pipes}, and PyTorch and TensorFlow 2 read files"
    # FastFile mode reads no manifest.
    mode = "FastFile" if all(one.data_type == "S3Prefix" for one in channels.values()) else "File"
    when = "reads the same objects as files while training" if mode == "FastFile" else "copies the same objects first"
    wrapped = any(
        one.compression != "None" or one.record_wrapping != "None" or one.shuffle is not None
        for one in channels.values()
    )
    first, *others = (("channels", name, "mode") for name in channels)
    help_ = f"`mode: {mode}` {when}; or `silence: [SMDP422]`"
    yield Finding(first, message, help_, also=tuple(others), replacement=None if wrapped else mode)
