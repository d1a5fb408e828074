"""The commands `train` and `serve`. Both record stop signals before they import anything else."""

import gc

from smdp_entrypoint.processes.early_stops import record_stops


def train() -> int:
    record_stops()
    from smdp_entrypoint.cli import main

    return _without_last_collection(main())


def serve() -> int:
    record_stops()
    from smdp_entrypoint.serving.cli import main

    return _without_last_collection(main())


def _without_last_collection(code: int) -> int:
    gc.freeze()  # the interpreter's last collection would only delay the host's end
    return code
