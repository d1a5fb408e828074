"""Flight records of a running process."""

import os
from pathlib import Path
from typing import Optional, Union

from ..torch_backend import adapter


def dump(folder: Optional[Union[str, "os.PathLike[str]"]] = None) -> Path:
    """Write this rank's flight records, the last operations of all its groups, and return the file's path.

    ``folder``: by default the value of ``SMDP_TRACE_DIR`` when the process group was created. Any thread may call it,
    also while other threads wait for an operation.

    Raises:
        RuntimeError: this process has no group with the backend ``smddp``, no folder is set, or it cannot be written.
        ImportError: no adapter fits the installed torch.
    """
    return Path(str(adapter().dump("" if folder is None else os.fspath(folder))))
