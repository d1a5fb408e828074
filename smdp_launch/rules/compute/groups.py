"""Groups of hosts of other types beside the hosts that train."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.frameworks import TITLES
from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.model.channels import S3Channel
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.request.groups import groups, training_group
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.instance_types import OTHERS

_NAME = ("compute", "group_name")
_GROUPS = ("compute.other_groups", "compute.group_name")

#: The first releases for which AWS documents several groups (train-heterogeneous-cluster, 2026-11-28).
_SINCE = {"pytorch": (1, 10), "tensorflow": (2, 6)}

#: What a script reads that finds out in which group its host is.
_SIGNS = ("INSTANCE_GROUP", "instance_group", "group_name", "resourceconfig", "SM_RESOURCE_CONFIG", "SM_TRAINING_ENV")
_SIGNS_OF_HOSTS = ("SM_CURRENT_HOST", "SM_CURRENT_INSTANCE_TYPE", "current_host", "current_instance_type")


@rule("SMDP333", *_GROUPS)
def group_names_are_distinct(facts: Facts) -> Iterator[Problem]:
    name = training_group(facts.spec)
    if name in (facts.spec.compute.other_groups or {}):
        message = f'two groups have the name "{name}": the hosts that train, and one of `other_groups`'
        yield Problem((*OTHERS, name), message, "give one of them another name", on_key=True)


@rule("SMDP333", *_GROUPS, severity=Severity.WARNING)
def group_name_has_an_effect(facts: Facts) -> Iterator[Problem]:
    compute = facts.spec.compute
    if compute.group_name is not None and not compute.other_groups and not facts.document.is_written(OTHERS):
        message = "group_name has no effect: the job has no `other_groups`"
        yield Problem(_NAME, message, "remove it, or add `other_groups:`", on_key=True, remove=True)


@rule("SMDP334", "compute.other_groups", "compute.fallback_types", "compute.keep_alive")
def groups_exclude_other_capacity(facts: Facts) -> Iterator[Problem]:
    compute = facts.spec.compute
    reasons = {
        "fallback_types": "SageMaker tries several types only for a job with one group",
        "keep_alive": "SageMaker has no warm pools for several groups",
    }
    for key, reason in reasons.items():
        if compute.other_groups and getattr(compute, key) is not None:
            message = f"{key} and other_groups exclude each other: {reason}"
            yield Problem(("compute", key), message, "remove one of the two", on_key=True)


@rule("SMDP335", "compute.other_groups")
def types_exist(facts: Facts) -> Iterator[Problem]:
    known = sorted(known_instance_types())
    for name, one in (facts.spec.compute.other_groups or {}).items():
        if one.instance_type in known:
            continue
        meant = closest(one.instance_type, known, cutoff=0.8)
        message = f"SageMaker has no instance type {one.instance_type} for training"
        help_ = f"did you mean {meant}?" if meant else "`smdp-launch catalog instances` lists the types"
        yield Problem((*OTHERS, name, "instance_type"), message, help_, replacement=meant)


@rule("SMDP336", "compute.other_groups", "script.entry", severity=Severity.WARNING)
def script_reads_its_group(facts: Facts) -> Iterator[Problem]:
    compute = facts.spec.compute
    if not compute.other_groups or not facts.scripts:
        return
    text = [line for one in facts.scripts.values() for line in one.lines]
    if not text or any(sign in line for line in text for sign in (*_SIGNS, *_SIGNS_OF_HOSTS)):
        return
    message = f"{facts.spec.script.entry} does not read in which group its host is, so all hosts do the same"
    help_ = "read SM_CURRENT_INSTANCE_GROUP, and let the hosts of other groups prepare data"
    yield Problem(OTHERS, message, f"{help_}; or write `silence: [SMDP336]`", on_key=True)


@rule("SMDP337", "compute.other_groups", "framework.name", "framework.version", "image")
def framework_has_groups(facts: Facts) -> Iterator[Problem]:
    framework = facts.spec.framework
    name, first = TITLES[framework.name], _SINCE[framework.name]
    if not facts.spec.compute.other_groups or facts.spec.image is not None:
        return
    if tuple(int(part) for part in framework.version.split("."))[:2] < first:
        version = ".".join(map(str, first))
        message = f"AWS's images have several groups since {name} {version}, and this is {framework.version}"
        yield Problem(("framework", "version"), message, f'write "{version}" or later, or remove `other_groups`')


@rule("SMDP429", "channels", *_GROUPS)
def channels_name_groups(facts: Facts) -> Iterator[Problem]:
    known = [one.name for one in groups(facts.spec)]
    for name, channel in facts.s3_channels("groups"):
        yield from _unknown_groups(name, channel, known)


def _unknown_groups(name: str, channel: S3Channel, known: list[str]) -> Iterator[Problem]:
    at = ("channels", name, "groups")
    if channel.groups is not None and not known:
        message = f"channel {name} names groups, but the job has no `other_groups`: all hosts get the data"
        yield Problem(at, message, "remove it, or add `compute.other_groups`", on_key=True, remove=True)
        return
    for index, group in enumerate(channel.groups or ()):
        if group in known:
            continue
        meant = closest(group, known)
        message = f'channel {name} names the group "{group}", which the job does not have'
        help_ = f'did you mean "{meant}"?' if meant else f"its groups are {', '.join(known)}"
        yield Problem((*at, index), message, help_, replacement=to_yaml(meant) if meant else None)
