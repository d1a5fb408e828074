"""Local data for the channels. Only local runs read it: for other commands its problems are notes, so that a machine
without the data can validate, plan and launch the job."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.rules.base.channel_uses import unread_channels
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.source.scan import LocalData
from smdp_launch.units import all_of, count, listed


@rule("SMDP406", "channels", "local.channels")
def local_channels(facts: Facts) -> Iterator[Problem]:
    known = [str(one) for one in facts.document.data.get("channels", {})]
    listed = f"the job has {', '.join(known)}" if known else "the job has no channels: add `channels:`"
    for name in facts.spec.local.channels:
        if name not in known:
            match = closest(name, known)
            help_ = f'did you mean "{match}"?' if match else listed
            at, meant = ("local", "channels", name), to_yaml(match) if match else None
            yield Problem(at, f'the job has no channel "{name}"', help_, on_key=True, replacement=meant)
    for name in sorted(facts.data_flags - set(known)):
        yield Problem((), f'--data {name}=…: the job has no channel "{name}"', listed, text=name)


@rule("SMDP404", "channels", "local.channels")
def local_data_exists(facts: Facts) -> Iterator[Problem]:
    for name, data in facts.local_data.items():
        if facts.local and not data.exists:
            yield _local_data(facts, name, data, "it does not exist")


@rule("SMDP405", "channels", "local.channels")
def local_data_is_readable(facts: Facts) -> Iterator[Problem]:
    for name, data in facts.local_data.items():
        if facts.local and data.exists and data.problem is not None:
            yield _local_data(facts, name, data, data.problem)


@rule("SMDP404", "channels", "local.channels", severity=Severity.NOTE)
def local_data_may_be_missing(facts: Facts) -> Iterator[Problem]:
    missing = {name: data for name, data in facts.local_data.items() if not data.exists}
    if missing and not facts.local:
        paths = ", ".join(_shown(one.path) for one in missing.values())
        yield _note(missing, f"does not exist: {paths}")


@rule("SMDP405", "channels", "local.channels", severity=Severity.NOTE)
def local_data_may_be_unusable(facts: Facts) -> Iterator[Problem]:
    unusable = {name: data for name, data in facts.local_data.items() if data.exists and data.problem is not None}
    if unusable and not facts.local:
        reasons = "; ".join(f"{_shown(one.path)}: {one.problem}" for one in unusable.values())
        yield _note(unusable, f"cannot be used: {reasons}")


def _note(data: Mapping[str, LocalData], problem: str) -> Problem:
    first, *others = (("local", "channels", name) for name in data)
    message = f"local data of {all_of('channel', list(data))} {problem}"
    return Problem(first, message, "only `launch --local` and `rehearse` need it", also=tuple(others))


def _shown(path: Path) -> str:
    return os.path.normpath(path)


def _local_data(facts: Facts, channel: str, data: LocalData, problem: str) -> Problem:
    message = f"local data of channel {channel}, {data.path}: {problem}"
    is_mounted = isinstance(dict(facts.channels()).get(channel), FsxChannel | EfsChannel)
    help_ = f"name a readable folder {'' if is_mounted else 'or file '}with the channel's data"
    if channel in facts.data_flags:
        return Problem((), message, help_, text=f"--data {channel}={data.path}")
    if channel in facts.spec.local.channels:
        return Problem(("local", "channels", channel), message, help_)
    help_ += ", or name another folder in the local cloud's account"
    return Problem(("channels", channel, "path"), message, help_)


@rule("SMDP407", "channels", "local.channels")
def channels_have_local_data(facts: Facts) -> Iterator[Problem]:
    named = {*facts.local_data, *facts.spec.local.channels}
    # Another rule reports misspelt names.
    misspelt = {closest(one, list(facts.spec.channels)) for one in named if one not in facts.spec.channels}
    missing = [one for one in facts.spec.channels if one not in named | misspelt] if facts.local else []
    is_known = missing and facts.has("script.hyperparameters", "environment")
    unread = unread_channels(facts, {one.upper(): one for one in missing}) if is_known else []
    for name in missing:
        message = f"channel {name} has no local data, which a local run needs"
        help_ = f"add `local: {{channels: {{{name}: FOLDER}}}}`, or use --data {name}=FOLDER"
        if name in unread:
            help_ += f", or remove the channel: no script reads SM_CHANNEL_{name.upper()}"
        yield Problem(("channels", name), message, help_, on_key=True)


@rule("SMDP414", "channels", "local.channels", "compute.instance_count", severity=Severity.WARNING)
def every_host_has_data(facts: Facts) -> Iterator[Problem]:
    hosts = facts.spec.compute.instance_count
    small = {
        name: data.files
        for name, channel in facts.s3_channels("distribution")
        if channel.distribution == "ShardedByS3Key"
        and (data := facts.local_data.get(name)) is not None
        and data.complete
        and 0 < data.files < hosts
    }
    if small:
        files = listed([count(amount, "file") for amount in small.values()])
        whose = f"{all_of('channel', list(small))}, but {'its' if len(small) == 1 else 'their'}"
        message = f"{hosts} hosts share the files of {whose} local data has only {files}"
        help_ = f"split the data into {hosts} objects or more, or write `distribution: FullyReplicated`"
        first, *others = (("channels", name, "distribution") for name in small)
        yield Problem(first, message, help_, also=tuple(others))
