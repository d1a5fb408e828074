"""Whether hosts can be isolated here, which is tried once in each process that collects tests."""

from __future__ import annotations

from functools import cache

import pytest

from smdp_launch.localcloud.isolation import namespaces, network

namespace_refusal = cache(namespaces.refusal)
shaping_refusal = cache(network.shaping_refusal)


@cache
def network_refusal() -> str | None:
    return network.missing() or namespace_refusal()


needs_namespaces = pytest.mark.skipif(namespace_refusal() is not None, reason=f"no namespaces: {namespace_refusal()}")
needs_networks = pytest.mark.skipif(network_refusal() is not None, reason=f"no networks: {network_refusal()}")
inputs_refusal = cache(lambda: namespaces.refusal(with_inputs=True))
needs_fuse = pytest.mark.skipif(inputs_refusal() is not None, reason=f"no mounts by FUSE: {inputs_refusal()}")
