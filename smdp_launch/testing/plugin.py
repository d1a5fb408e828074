"""The pytest fixture ``local_cloud``. pytest finds this plugin when smdp-launch is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from smdp_launch.testing.cloud import LocalCloud


@pytest.fixture(name="local_cloud")
def local_cloud_fixture() -> Iterator[LocalCloud]:
    """A local cloud for one test: boto3, the SageMaker SDK and smdp-launch use it in place of AWS."""
    from smdp_launch.testing.cloud import local_cloud

    with local_cloud() as cloud:
        yield cloud
