"""SLURM's lists of nodes, such as ``node[01-03,7],gpu-a``, as ``scontrol show hostnames`` expands them."""

import itertools
import re
from typing import Iterator, List

#: SLURM's own limit (MAX_RANGE).
_MOST = 64 * 1024
_ITEM = re.compile(r"(?:[^,\[\]\s]|\[[^,\[\]\s]+(?:,[^,\[\]\s]+)*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def expand(text: str) -> List[str]:
    """The names of the nodes, in the list's order.

    Raises:
        ValueError: the text is not a list of nodes, or has more than 65,536 of them.
    """
    names: List[str] = []
    position = 0
    while True:
        item = _ITEM.match(text, position)
        if item is None:
            raise ValueError(f"no node's name at character {position + 1}")
        for name in _of_item(item[0]):
            names.append(name)
            if len(names) > _MOST:
                raise ValueError(f"more than {_MOST} nodes")
        position = item.end()
        if position == len(text):
            return names
        if text[position] != ",":
            raise ValueError(f"unexpected {text[position]!r} at character {position + 1}")
        position += 1


def _of_item(item: str) -> Iterator[str]:
    """The names of one item; its last range changes first."""
    if "[" in item and not item.endswith("]"):
        raise ValueError(f"text behind the last bracket in {item!r}")
    choices = [
        list(itertools.islice(_numbers(ranges), _MOST + 1)) if ranges else [plain]
        for ranges, plain in _PART.findall(item)
    ]
    return map("".join, itertools.product(*choices))


def _numbers(ranges: str) -> Iterator[str]:
    """``01-03,7``: 01, 02, 03, 7. The first number of a range has the width of all its numbers."""
    for one in ranges.split(","):
        match = _RANGE.fullmatch(one)
        if match is None:
            raise ValueError(f"{one!r} is not a range")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST:
            raise ValueError(f"{one!r} is an empty range, or too large a one")
        for number in range(first, last + 1):
            yield str(number).zfill(len(match[1]))


def expand_counts(text: str) -> List[int]:
    """The tasks of each node, as ``2(x3),1`` lists them: 2, 2, 2, 1.

    Raises:
        ValueError: the text is not such a list, or has more than 65,536 nodes.
    """
    counts: List[int] = []
    for one in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", one)
        if match is None:
            raise ValueError(f"{one!r} is not a number of tasks")
        repeated = int(match[2] or 1)
        if len(counts) + repeated > _MOST:
            raise ValueError(f"more than {_MOST} nodes")
        counts += [int(match[1])] * repeated
    return counts
