"""The network of each instance type.

The figures are those of smdp-launch's catalog (smdp_launch/catalog/dated/instances.json, which names their sources;
checked 2026-11-26). A test compares the two tables.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple


class Figure(NamedTuple):
    """`gbit` is the rate of all network cards of a host together in each direction; `cards` is their number, each with
    one Elastic Fabric Adapter; 0 for a type without the adapter, which has one card."""

    gbit: float
    cards: int

    @property
    def rail_gbit(self) -> float:
        """The rate of one network card."""
        return self.gbit / max(self.cards, 1)


INSTANCES: Mapping[str, Figure] = {
    "ml.p3.2xlarge": Figure(10, 0),
    "ml.p3.8xlarge": Figure(10, 0),
    "ml.p3.16xlarge": Figure(25, 0),
    "ml.p3dn.24xlarge": Figure(100, 1),
    "ml.p4d.24xlarge": Figure(400, 4),
    "ml.p4de.24xlarge": Figure(400, 4),
    "ml.p5.4xlarge": Figure(100, 1),
    "ml.p5.48xlarge": Figure(3200, 32),
    "ml.p5e.48xlarge": Figure(3200, 32),
    "ml.p5en.48xlarge": Figure(3200, 16),
    "ml.p6-b200.48xlarge": Figure(3200, 8),
    "ml.p6-b300.48xlarge": Figure(6400, 16),
    "ml.p6e-gb200.36xlarge": Figure(1600, 16),
    "ml.g4dn.xlarge": Figure(25, 0),
    "ml.g4dn.2xlarge": Figure(25, 0),
    "ml.g4dn.4xlarge": Figure(25, 0),
    "ml.g4dn.8xlarge": Figure(50, 1),
    "ml.g4dn.12xlarge": Figure(50, 1),
    "ml.g4dn.16xlarge": Figure(50, 1),
    "ml.g5.xlarge": Figure(10, 0),
    "ml.g5.2xlarge": Figure(10, 0),
    "ml.g5.4xlarge": Figure(25, 0),
    "ml.g5.8xlarge": Figure(25, 1),
    "ml.g5.12xlarge": Figure(40, 1),
    "ml.g5.16xlarge": Figure(25, 1),
    "ml.g5.24xlarge": Figure(50, 1),
    "ml.g5.48xlarge": Figure(100, 1),
    "ml.g6.xlarge": Figure(10, 0),
    "ml.g6.2xlarge": Figure(10, 0),
    "ml.g6.4xlarge": Figure(25, 0),
    "ml.g6.8xlarge": Figure(25, 1),
    "ml.g6.12xlarge": Figure(40, 1),
    "ml.g6.16xlarge": Figure(25, 1),
    "ml.g6.24xlarge": Figure(50, 1),
    "ml.g6.48xlarge": Figure(100, 1),
    "ml.g6e.xlarge": Figure(20, 0),
    "ml.g6e.2xlarge": Figure(20, 0),
    "ml.g6e.4xlarge": Figure(20, 0),
    "ml.g6e.8xlarge": Figure(25, 1),
    "ml.g6e.12xlarge": Figure(100, 1),
    "ml.g6e.16xlarge": Figure(35, 1),
    "ml.g6e.24xlarge": Figure(200, 2),
    "ml.g6e.48xlarge": Figure(400, 4),
    "ml.g7.2xlarge": Figure(60, 0),
    "ml.g7.4xlarge": Figure(100, 0),
    "ml.g7.8xlarge": Figure(100, 1),
    "ml.g7.12xlarge": Figure(175, 1),
    "ml.g7.24xlarge": Figure(350, 1),
    "ml.g7.48xlarge": Figure(700, 2),
    "ml.g7e.2xlarge": Figure(50, 0),
    "ml.g7e.4xlarge": Figure(50, 0),
    "ml.g7e.8xlarge": Figure(100, 1),
    "ml.g7e.12xlarge": Figure(400, 1),
    "ml.g7e.24xlarge": Figure(800, 2),
    "ml.g7e.48xlarge": Figure(1600, 4),
}


def figure(instance_type: str, gbit: float | None) -> Figure | None:
    """The figure of a host, None if it is not known.

    Args:
        gbit: from the job's environment, for hosts with another network than their instance type: 0 for a network
            whose rate is not known. None: none is set.
    """
    if gbit is not None:
        return Figure(gbit, 0) if gbit > 0 else None
    return INSTANCES.get(instance_type)
