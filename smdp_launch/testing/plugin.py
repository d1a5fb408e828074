"""For pytest, which finds it where smdp-launch is installed: the fixture ``local_cloud``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from smdp_launch.testing.cloud import LocalCloud


@pytest.fixture(name="local_cloud")
def local_cloud_fixture() -> Iterator[LocalCloud]:
    """A local cloud of the test's own: boto3, the SageMaker SDK and smdp-launch talk to it, as to AWS."""
    from smdp_launch.testing.cloud import local_cloud

    with local_cloud() as cloud:
        yield cloud
