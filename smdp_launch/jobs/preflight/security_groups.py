"""The traffic that security groups allow, from EC2's descriptions of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

#: Descriptions by group id.
Groups = Mapping[str, Mapping[str, Any]]

#: In place of a range of TCP ports: every protocol and port.
EVERYTHING = (-1, -1)


def closed(
    groups: Groups, source: Sequence[str], target: Sequence[str], ports: tuple[int, int], addresses: Sequence[str] = ()
) -> bool:
    """Whether members of the ``source`` groups cannot reach members of ``target`` on all ``ports``.

    Args:
        addresses: the address ranges of the members, for rules that name addresses instead of groups.
    """
    out = any(_allows(groups[one]["IpPermissionsEgress"], target, ports, addresses) for one in source)
    into = any(_allows(groups[one]["IpPermissions"], source, ports, addresses) for one in target)
    return not (out and into)


def _allows(
    rules: Sequence[Mapping[str, Any]], peers: Sequence[str], ports: tuple[int, int], addresses: Sequence[str]
) -> bool:
    return any(_opens(one, ports) and _names(one, peers, addresses) for one in rules)


def _opens(rule: Mapping[str, Any], ports: tuple[int, int]) -> bool:
    if rule["IpProtocol"] == "-1":
        return True
    if ports == EVERYTHING or rule["IpProtocol"] not in ("tcp", "6"):
        return False
    return bool(rule.get("FromPort", 0) <= ports[0] and ports[1] <= rule.get("ToPort", 65535))


def _names(rule: Mapping[str, Any], peers: Sequence[str], addresses: Sequence[str]) -> bool:
    """Whether the rule names one of the groups, or ranges that cover all of the addresses."""
    if any(one["GroupId"] in peers for one in rule.get("UserIdGroupPairs", [])):
        return True
    ranges = [ipaddress.ip_network(one["CidrIp"], strict=False) for one in rule.get("IpRanges", [])]
    own = [ipaddress.ip_network(one, strict=False) for one in addresses]
    return bool(own) and all(any(_within(one, other) for other in ranges) for one in own)


def _within(one: Any, other: Any) -> bool:
    return bool(one.version == other.version and one.subnet_of(other))
