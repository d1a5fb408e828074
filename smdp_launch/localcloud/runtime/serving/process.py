"""The process that supervises an endpoint or a transform job. What prevents its start becomes the reason of the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from smdp_launch.localcloud import endpoint_state
from smdp_launch.localcloud.client.bucket import BucketError
from smdp_launch.localcloud.client.connect import LocalCloudError
from smdp_launch.localcloud.endpoint_state import EndpointState, TransformState
from smdp_launch.localcloud.files import write_json
from smdp_launch.localcloud.isolation import namespaces
from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.runtime import port_lease
from smdp_launch.localcloud.started_supervisor import own_folder

_Folder = TypeVar("_Folder", bound=EndpointFolder)
_State = TypeVar("_State", EndpointState, TransformState)


def run(
    kind: Callable[[Path], _Folder],
    read: Callable[[Path], _State | None],
    supervise: Callable[[_Folder, _State], None],
    fail: Callable[[_State, str], None],
) -> int:
    """Supervise what is in the folder that the command line names. Return the exit code.

    Args:
        kind: makes the folder from its path.
        fail: gives a state the reason why it has failed.
    """
    folder = own_folder(kind)
    namespaces.adopt_orphans()
    write_json(folder.pid, {"pid": os.getpid()})
    state = read(folder.state)
    if state is None:
        return 1
    try:
        supervise(folder, state)
    except (LocalCloudError, BucketError, port_lease.LeaseError) as error:
        fail(state, f"InternalServerError: {error}")
        endpoint_state.write(folder.state, state)
        return 1
    return 0
