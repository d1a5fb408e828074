"""Local data for the channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from smdp_launch.source.scan import scan_data

_FOLDERS = ("data", "dataset", "datasets")


def find_data(channels: Sequence[str], folders: Sequence[Path]) -> dict[str, Path]:
    """A folder for each channel that has one, such as ``data/train`` or ``train``, below one of ``folders``."""
    found: dict[str, Path] = {}
    for channel in channels:
        for path in _places(channel, folders, alone=len(channels) == 1):
            if _is_data(path):
                found[channel] = path
                break
    return found


def _places(channel: str, folders: Sequence[Path], alone: bool) -> Iterator[Path]:
    for folder in dict.fromkeys(folders):
        yield from (folder / one / channel for one in _FOLDERS)
        yield folder / channel
        if alone:
            yield from (folder / one for one in _FOLDERS)


def _is_data(path: Path) -> bool:
    try:
        # A folder called train can be a Python package.
        if not path.is_dir() or any(one.suffix == ".py" for one in path.iterdir()):
            return False
        return scan_data(path).problem is None
    except OSError:
        return False
