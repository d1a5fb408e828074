"""The environment of a process, read with errors that name variable, value and fix."""

import re
from typing import Mapping, Optional, Sequence

from .launch import LaunchError

_NUMBER = re.compile(r"[0-9]{1,10}")
_MOST = 2**31 - 1  # ranks
_SHOWN = 100  # characters of a wrong value


def shown(text: str) -> str:
    """A wrong value for a message, cut to its beginning."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


class Variables:
    """An empty variable counts as missing: shells and manifests often set one to nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def __contains__(self, name: str) -> bool:
        return bool(self._environ.get(name))

    def text(self, *names: str) -> Optional[str]:
        """The value of the first variable that is set."""
        name = self.first(names)
        return self._environ[name] if name else None

    def first(self, names: Sequence[str]) -> Optional[str]:
        return next((name for name in names if name in self), None)

    def number(self, *names: str, fix: str) -> int:
        """The number in the first variable that is set. ``fix`` ends the sentence if none is."""
        found = self.optional_number(*names)
        if found is None:
            raise LaunchError(f"{names[0]} is not set: {fix}")
        return found

    def optional_number(self, *names: str) -> Optional[int]:
        name = self.first(names)
        if name is None:
            return None
        text = self._environ[name]
        if _NUMBER.fullmatch(text) is None or int(text) > _MOST:
            raise LaunchError(f"{name}={shown(text)} is not a number of 0 or more: correct it or unset it")
        return int(text)

    def port(self) -> Optional[int]:
        """MASTER_PORT."""
        text = self.text("MASTER_PORT")
        if text is None:
            return None
        if _NUMBER.fullmatch(text) is None or not 0 < int(text) < 2**16:
            raise LaunchError(f"MASTER_PORT={shown(text)} is not a port: set it to a number from 1 to 65535")
        return int(text)

    def check(self, **values: int) -> None:
        """Refuse variables such as RANK that are set and differ from what the launcher decided."""
        for name, value in values.items():
            if name in self and self.number(name, fix="") != value:
                raise LaunchError(
                    f"{name}={self._environ[name]} contradicts the launcher, for which it is {value}: "
                    f"unset {name}, or pass launcher='env' if RANK, WORLD_SIZE and LOCAL_RANK are right"
                )


def check_bounds(
    rank: int, world_size: int, local_rank: int, local_world_size: Optional[int], names: Sequence[str]
) -> None:
    """Refuse numbers that cannot be of one job. ``names``: the variables of the four numbers."""
    if rank >= world_size:
        raise LaunchError(
            f"{names[0]}={rank} is not below {names[1]}={world_size}: "
            "ranks count from 0, so correct the one that is wrong"
        )
    most = world_size if local_world_size is None else local_world_size
    if local_rank >= most:
        raise LaunchError(
            f"{names[2]}={local_rank} is not below {names[1] if local_world_size is None else names[3]}={most}: "
            "local ranks count from 0 on each host, so correct the one that is wrong"
        )
    if local_world_size is not None and local_world_size > world_size:
        raise LaunchError(
            f"{names[3]}={local_world_size} is more than {names[1]}={world_size}: correct the one that is wrong"
        )
