"""Flight records of a process that runs."""

import os
from pathlib import Path
from typing import Optional, Union

from ..torch_backend import adapter


def dump(folder: Optional[Union[str, "os.PathLike[str]"]] = None) -> Path:
    """Write this rank's flight records, the last operations of all its groups, and return the file's path.

    ``folder``: by default the one that ``SMDP_TRACE_DIR`` named when the process group was made. Any thread may call
    it, also while others wait for an operation.

    Raises:
        RuntimeError: no process group uses the backend ``smddp`` here, no folder is known, or it cannot be written.
        ImportError: the backend was not built, or was built for another torch.
    """
    return Path(str(adapter().dump("" if folder is None else os.fspath(folder))))
