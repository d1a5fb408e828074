from __future__ import annotations

import pytest
from entrypoint_support.host import Host
from entrypoint_support.serving import Server


@pytest.fixture
def server(host: Host) -> Server:
    return Server(host)
