"""What the first generation says of itself: each entry once, with what to write instead."""

import functools
import warnings
from typing import Any, Callable, Set, TypeVar, cast

PACKAGE = "smdistributed.dataparallel.torch"
_Function = TypeVar("_Function", bound=Callable[..., Any])
_told: Set[str] = set()


def deprecated(entry: str, replacement: str) -> Callable[[_Function], _Function]:
    """Makes a function warn at its first call, on behalf of whoever called it.

    ``entry`` is its name below the package, ``replacement`` the end of the sentence "use ...".
    """

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def warns(*args: Any, **kwargs: Any) -> Any:
            if entry not in _told:
                _told.add(entry)
                text = f"{PACKAGE}.{entry} is deprecated: use {replacement}"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return cast(_Function, warns)

    return decorate
