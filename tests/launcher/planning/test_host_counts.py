"""The hosts of a ResourceConfig: of requests, and of answers that describe a job."""

from __future__ import annotations

from typing import Any

import pytest

from smdp_launch.host_counts import host_count, hosts_by_type

P4D, P3DN, C5 = "ml.p4d.24xlarge", "ml.p3dn.24xlarge", "ml.c5.18xlarge"
PREFERRED = [{"InstanceType": P4D, "InstanceCount": 2}, {"InstanceType": P3DN, "InstanceCount": 4}]


@pytest.mark.parametrize(
    ("resources", "by_type", "in_all"),
    [
        ({"InstanceType": P4D, "InstanceCount": 2}, {P4D: 2}, 2),
        (
            {
                "InstanceGroups": [
                    {"InstanceGroupName": "workers", "InstanceType": P4D, "InstanceCount": 2},
                    {"InstanceGroupName": "data", "InstanceType": C5, "InstanceCount": 3},
                    {"InstanceGroupName": "more", "InstanceType": P4D, "InstanceCount": 1},
                ]
            },
            {P4D: 3, C5: 3},
            6,
        ),
        ({"InstancePreferences": PREFERRED}, {}, 4),
        (
            {"InstancePreferences": PREFERRED, "SelectedInstanceType": P3DN, "SelectedInstanceCount": 3},
            {P3DN: 3},
            3,
        ),
        ({"InstancePreferences": PREFERRED, "InstanceType": P4D, "InstanceCount": 2}, {P4D: 2}, 2),
        ({}, {}, 1),
    ],
)
def test_hosts_of_each_form_of_a_resource_config(
    resources: dict[str, Any], by_type: dict[str, int], in_all: int
) -> None:
    assert (hosts_by_type(resources), host_count(resources)) == (by_type, in_all)
