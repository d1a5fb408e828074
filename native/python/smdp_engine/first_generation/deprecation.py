"""The deprecation warnings of the first generation: one for each function, with the replacement."""

import functools
import warnings
from typing import Any, Callable, Set, TypeVar, cast

PACKAGE = "smdistributed.dataparallel.torch"
_Function = TypeVar("_Function", bound=Callable[..., Any])
_warned: Set[str] = set()


def deprecated(entry: str, replacement: str) -> Callable[[_Function], _Function]:
    """Make a function warn at its first call, with the caller's place.

    ``entry`` is its name below the package, ``replacement`` completes the sentence "use ...".
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def warns(*args: Any, **kwargs: Any) -> Any:
            if entry not in _warned:
                _warned.add(entry)
                text = f"{PACKAGE}.{entry} is deprecated: use {replacement}"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return cast(_Function, warns)

    return decorate
