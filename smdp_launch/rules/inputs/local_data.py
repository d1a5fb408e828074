"""Local data that stands for the channels. Only a local run reads it: elsewhere, what is wrong with it is a note, so
that a machine without the data can validate, plan and launch the job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.jobfile.yaml.text import written
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.source.scan import LocalData
from smdp_launch.units import all_of, count, listed


@rule("SMDP406", "channels", "local.channels")
def local_channels(facts: Facts) -> Iterator[Finding]:
    known = [str(one) for one in facts.document.data.get("channels", {})]
    listed = f"the job has {', '.join(known)}" if known else "the job has no channel at all: add `channels:`"
    for name in facts.spec.local.channels:
        if name not in known:
            match = closest(name, known)
            help_ = f'did you mean "{match}"?' if match else listed
            at, meant = ("local", "channels", name), written(match) if match else None
            yield Finding(at, f'the job has no channel "{name}"', help_, on_key=True, replacement=meant)
    for name in sorted(facts.data_flags - set(known)):
        yield Finding((), f'--data {name}=…: the job has no channel "{name}"', listed, text=name)


@rule("SMDP404", "channels", "local.channels")
def local_data_is_there(facts: Facts) -> Iterator[Finding]:
    for name, data in facts.local_data.items():
        if facts.local and not data.exists:
            yield _local_data(facts, name, data, "it does not exist")


@rule("SMDP405", "channels", "local.channels")
def local_data_can_be_read(facts: Facts) -> Iterator[Finding]:
    for name, data in facts.local_data.items():
        if facts.local and data.exists and data.problem is not None:
            yield _local_data(facts, name, data, data.problem)


@rule("SMDP404", "channels", "local.channels", severity=Severity.NOTE)
def local_data_may_be_absent(facts: Facts) -> Iterator[Finding]:
    absent = {name: data for name, data in facts.local_data.items() if not data.exists}
    if absent and not facts.local:
        paths = ", ".join(_shown(one.path) for one in absent.values())
        yield _note(absent, f"does not exist: {paths}")


@rule("SMDP405", "channels", "local.channels", severity=Severity.NOTE)
def local_data_may_be_unusable(facts: Facts) -> Iterator[Finding]:
    unusable = {name: data for name, data in facts.local_data.items() if data.exists and data.problem is not None}
    if unusable and not facts.local:
        reasons = "; ".join(f"{_shown(one.path)}: {one.problem}" for one in unusable.values())
        yield _note(unusable, f"cannot be used: {reasons}")


def _note(data: Mapping[str, LocalData], problem: str) -> Finding:
    first, *others = (("local", "channels", name) for name in data)
    message = f"local data of {all_of('channel', list(data))} {problem}"
    return Finding(first, message, "only `launch --local` and `rehearse` need it", also=tuple(others))


def _shown(path: Path) -> str:
    return os.path.normpath(path)


def _local_data(facts: Facts, channel: str, data: LocalData, problem: str) -> Finding:
    message = f"local data of channel {channel}, {data.path}: {problem}"
    is_mounted = isinstance(dict(facts.channels()).get(channel), FsxChannel | EfsChannel)
    help_ = f"give a readable folder {'' if is_mounted else 'or file '}with the channel's data"
    if channel in facts.data_flags:
        return Finding((), message, help_, text=f"--data {channel}={data.path}")
    if channel in facts.spec.local.channels:
        return Finding(("local", "channels", channel), message, help_)
    return Finding(("channels", channel, "path"), message, f"{help_}, or name another one in the local cloud's account")


@rule("SMDP407", "channels", "local.channels")
def channels_have_local_data(facts: Facts) -> Iterator[Finding]:
    named = {*facts.local_data, *facts.spec.local.channels}
    # A misspelt name is told where it stands.
    misspelt = {closest(one, list(facts.spec.channels)) for one in named if one not in facts.spec.channels}
    for name in facts.spec.channels if facts.local else ():
        if name not in named | misspelt:
            message = f"a local run needs data for channel {name}, and none is named"
            help_ = f"add `local: {{channels: {{{name}: FOLDER}}}}`, or give --data {name}=FOLDER"
            yield Finding(("channels", name), message, help_, on_key=True)


@rule("SMDP414", "channels", "local.channels", "compute.instance_count", severity=Severity.WARNING)
def shards_for_every_host(facts: Facts) -> Iterator[Finding]:
    hosts = facts.spec.compute.instance_count
    found = {
        name: data.files
        for name, channel in facts.s3_channels("distribution")
        if channel.distribution == "ShardedByS3Key"
        and (data := facts.local_data.get(name)) is not None
        and data.complete
        and 0 < data.files < hosts
    }
    if found:
        files = listed([count(amount, "file") for amount in found.values()])
        whose = f"{all_of('channel', list(found))}, and {'its' if len(found) == 1 else 'their'}"
        message = f"{hosts} hosts share the files of {whose} local data has {files}"
        help_ = f"split the data into {hosts} objects or more: a host without one gets no data; or FullyReplicated"
        first, *others = (("channels", name, "distribution") for name in found)
        yield Finding(first, message, help_, also=tuple(others))
