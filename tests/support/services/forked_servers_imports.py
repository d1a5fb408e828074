"""What servers and supervisors import, for the process that forks them (``forked_servers``)."""

import importlib

from smdp_launch.localcloud.environment import isolate
from tests.support.services import forked_servers

isolate()
for _name in (
    "smdp_launch.localcloud.server.server",
    "smdp_launch.localcloud.runtime.host_process",
    *forked_servers.PROGRAMS[1:],
):
    importlib.import_module(_name)
forked_servers.fork_for(importlib.import_module("smdp_launch.localcloud.client.connect"))
forked_servers.fork_for(importlib.import_module("smdp_launch.localcloud.services.supervised"))
