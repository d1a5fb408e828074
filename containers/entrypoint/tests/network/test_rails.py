"""The interfaces and adapters of a host, on trees like those of /sys on real instances."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from smdp_entrypoint.contract.devices import System
from smdp_entrypoint.network.figures import INSTANCES, figure
from smdp_entrypoint.network.messages import Ready
from smdp_entrypoint.network.plan import Probe
from smdp_entrypoint.network.rails import Rail, find_adapters, find_rails, is_loopback, up_interfaces

AMAZON = "0x1d0f"
# PCI addresses of the adapters, and the NUMA node of each, as these instance types have them: one adapter on p3dn, one
# for two GPUs on p4d, four for each GPU on p5.
P3DN = {"0000:00:06.0": 0}
P4D = {"0000:10:1b.0": 0, "0000:20:1b.0": 0, "0000:90:1b.0": 1, "0000:a0:1b.0": 1}
P5 = {f"0000:{bus:x}:{slot:x}.0": int(bus > 0x90) for bus in range(0x4F, 0xCF, 0x10) for slot in range(0x17, 0x1B)}
TREES = [("ml.p3dn.24xlarge", P3DN), ("ml.p4d.24xlarge", P4D), ("ml.p5.48xlarge", P5)]


def sys_tree(root: Path, adapters: dict[str, int], vendor: str = AMAZON) -> System:
    """Links below class/infiniband to devices, as the kernel makes them."""
    for pci, node in adapters.items():
        device = root / f"devices/pci0000:00/{pci}"
        _, bus, slot = pci.split(":")
        name = f"rdmap{int(bus, 16)}s{int(slot.partition('.')[0], 16)}"
        (device / "infiniband" / name).mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n", encoding="ascii")
        (device / "numa_node").write_text(f"{node}\n", encoding="ascii")
        (device / "infiniband" / name / "device").symlink_to(device)
        (root / "class/infiniband").mkdir(parents=True, exist_ok=True)
        (root / "class/infiniband" / name).symlink_to(device / "infiniband" / name)
    return System(sys=root)


@pytest.mark.parametrize(("instance_type", "adapters"), TREES)
def test_every_adapter_of_an_instance_is_found_with_its_place(
    tmp_path: Path, instance_type: str, adapters: dict[str, int]
) -> None:
    found = find_adapters(sys_tree(tmp_path, adapters))
    assert {adapter.pci: adapter.numa for adapter in found} == adapters
    assert len(found) == INSTANCES[instance_type].cards


def test_adapter_of_another_vendor_is_not_counted(tmp_path: Path) -> None:
    assert find_adapters(sys_tree(tmp_path, P4D, vendor="0x15b3")) == []


def test_host_without_the_class_has_no_adapters(tmp_path: Path) -> None:
    assert find_adapters(System(sys=tmp_path)) == []


@pytest.mark.parametrize(
    ("instance_type", "gbit"), [("ml.p3dn.24xlarge", 100), ("ml.p4d.24xlarge", 100), ("ml.p5.48xlarge", 100)]
)
def test_rate_of_a_rail_is_that_of_one_network_card(instance_type: str, gbit: float) -> None:
    known = figure(instance_type, None)
    assert known is not None
    assert known.rail_gbit == gbit


def test_rate_from_the_environment_replaces_that_of_the_instance_type() -> None:
    local = figure("ml.p4d.24xlarge", 1.0)
    assert local is not None
    assert (local.rail_gbit, local.cards) == (1.0, 0)
    assert figure("ml.p4d.24xlarge", 0.0) is None
    assert figure("ml.unknown.large", None) is None


INTERFACES = {
    "eth1": "10.1.0.5",
    "eth0": "10.0.0.5",
    "docker0": "172.17.0.1",
    "veth12ab": "172.18.0.1",
    "eth2": "169.254.3.4",
}


def test_rails_are_the_interfaces_that_reach_other_hosts() -> None:
    found = find_rails("10.0.0.5", interfaces=lambda: INTERFACES)
    assert found == [Rail("eth0", "10.0.0.5"), Rail("eth1", "10.1.0.5")]


def test_rail_with_the_hosts_address_is_the_first() -> None:
    assert find_rails("10.1.0.5", interfaces=lambda: INTERFACES)[0] == Rail("eth1", "10.1.0.5")


@pytest.mark.parametrize("wanted", ["eth1", "10.1.0.5"])
def test_named_interface_is_the_only_rail(wanted: str) -> None:
    assert find_rails("10.0.0.5", wanted, lambda: INTERFACES) == [Rail("eth1", "10.1.0.5")]


def test_interfaces_of_this_machine_have_their_addresses() -> None:
    for name, address in up_interfaces().items():
        assert name in {known for _, known in socket.if_nameindex()}
        socket.inet_aton(address)


def test_loopback_addresses_are_known() -> None:
    assert [is_loopback(one) for one in ("127.3.4.5", "::1", "10.0.0.1", "no address")] == [True, True, False, False]


def ready(hosts: int) -> dict[str, Ready]:
    return {f"algo-{i}": Ready({"eth0": (f"10.0.0.{i}", 4000)}, "eth0", 0) for i in range(1, hosts + 1)}


@pytest.mark.parametrize(
    ("instance_type", "streams"), [("ml.p3.16xlarge", 5), ("ml.p4d.24xlarge", 20), ("ml.p5.48xlarge", 20)]
)
def test_link_has_a_connection_for_each_capped_flow(instance_type: str, streams: int) -> None:
    hosts = ready(4)
    probe = Probe(list(hosts), hosts, figure(instance_type, None), 3.0)
    assert {one.streams for one in probe.rounds()[1].values()} == {streams}


@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_every_neighbour_is_measured_in_both_directions(hosts: int) -> None:
    known = ready(hosts)
    names = list(known)
    probe = Probe(names, known, figure("", 1.0), 3.0)
    measured = {(host, call.host) for plan in probe.rounds()[1:] for host, one in plan.items() for call in one.calls}
    ring = {(names[i], names[(i + 1) % hosts]) for i in range(hosts)}
    assert measured == ring | {(target, source) for source, target in ring}


@pytest.mark.parametrize("limit", [1.0, 3.0, 60.0])
def test_rounds_fit_the_time_limit(limit: float) -> None:
    hosts = ready(8)
    plan = Probe(list(hosts), hosts, figure("", 1.0), limit).rounds()
    assert sum(next(iter(one.values())).limit for one in plan) <= 0.95 * limit
    assert all(one.skip + one.window < one.limit for hosts_ in plan[1:] for one in hosts_.values())
