"""The deprecation warnings of the first generation: one for each function, on rank 0, with the replacement."""

import functools
import os
import warnings
from typing import Any, Callable, Set, TypeVar, cast

PACKAGE = "smdistributed.dataparallel.torch"
_Function = TypeVar("_Function", bound=Callable[..., Any])
_warned: Set[str] = set()


def deprecated(entry: str, replacement: str) -> Callable[[_Function], _Function]:
    """Make a function warn at its first call, with the caller's place. Only rank 0 warns: all ranks run one script.

    ``entry`` is its name below the package, ``replacement`` completes the sentence "use ...".
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def warns(*args: Any, **kwargs: Any) -> Any:
            if entry not in _warned and os.environ.get("RANK", "0") == "0":
                _warned.add(entry)
                text = f"{PACKAGE}.{entry} is deprecated: use {replacement}"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return cast(_Function, warns)

    return decorate
