"""The traffic that security groups allow, from EC2's descriptions of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Descriptions by group id.
Groups = Mapping[str, Mapping[str, Any]]

#: In place of a range of TCP ports: every protocol and port.
EVERYTHING = (-1, -1)


@dataclass(frozen=True)
class Peers:
    """One end of the traffic: its groups, and its addresses or address ranges, for rules that name these. ``addresses``
    is None if they are not known: any range may have them."""

    groups: Sequence[str]
    addresses: Sequence[str] | None = ()


def closed(groups: Groups, source: Peers, target: Peers, ports: tuple[int, int]) -> bool:
    """Whether ``source`` cannot reach ``target`` on all ``ports``. A rule names the other end: outbound rules name the
    target, inbound rules the source."""
    out = any(_allows(groups[one]["IpPermissionsEgress"], target, ports) for one in source.groups)
    into = any(_allows(groups[one]["IpPermissions"], source, ports) for one in target.groups)
    return not (out and into)


def _allows(rules: Sequence[Mapping[str, Any]], peers: Peers, ports: tuple[int, int]) -> bool:
    return any(_opens(one, ports) and _names(one, peers) for one in rules)


def _opens(rule: Mapping[str, Any], ports: tuple[int, int]) -> bool:
    if rule["IpProtocol"] == "-1":
        return True
    if ports == EVERYTHING or rule["IpProtocol"] not in ("tcp", "6"):
        return False
    return bool(rule.get("FromPort", 0) <= ports[0] and ports[1] <= rule.get("ToPort", 65535))


def _names(rule: Mapping[str, Any], peers: Peers) -> bool:
    """Whether the rule names one of the groups, or ranges that cover, or may cover, all of the addresses."""
    if any(one["GroupId"] in peers.groups for one in rule.get("UserIdGroupPairs", [])):
        return True
    if peers.addresses is None:
        return any(rule.get(one) for one in ("IpRanges", "Ipv6Ranges", "PrefixListIds"))
    ranges = [ipaddress.ip_network(one["CidrIp"], strict=False) for one in rule.get("IpRanges", [])]
    own = [ipaddress.ip_network(one, strict=False) for one in peers.addresses]
    return bool(own) and all(any(_within(one, other) for other in ranges) for one in own)


def _within(one: Any, other: Any) -> bool:
    return bool(one.version == other.version and one.subnet_of(other))
