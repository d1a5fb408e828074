"""The channels that a file reads, through ``SM_CHANNEL_...`` variables or folders of ``/opt/ml/input/data``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from smdp_launch.source.commandline.options import Option
from smdp_launch.source.syntax.extents import Extents
from smdp_launch.source.syntax.scopes import dotted
from smdp_launch.source.syntax.tree import Mark, Syntax, end, start

_CHANNEL_VARIABLE = re.compile(r"SM_CHANNEL_([A-Z0-9_.-]+)")
CHANNEL_FOLDER = re.compile(r"/opt/ml/input/data/([A-Za-z0-9._-]{1,64})(/.*)?", re.DOTALL)
_ENVIRON = {"os.environ", "environ"}


class ChannelUse(NamedTuple):
    """A channel that the code reads.

    Args:
        channel: its name in the variable or the path; in upper case for a variable.
        written: the variable or the path.
        needed: the script fails if the variable is missing.
        option: the command line option whose default it is.
    """

    mark: Mark
    channel: str
    written: str
    needed: bool
    option: Option | None


def channels(syntax: Syntax, around: Extents, options: Sequence[Option]) -> Iterator[ChannelUse]:
    mentions = [(node, match) for node in syntax.all(ast.Constant) if (match := _channel(node.value)) is not None]
    if not mentions:
        return
    required = {
        id(one.slice)
        for one in syntax.all(ast.Subscript)
        if isinstance(one.ctx, ast.Load) and dotted(one.value) in _ENVIRON
    }
    ignored = {id(one.value) for one in syntax.all(ast.Expr)}
    ignored |= {id(one) for node in syntax.all(ast.Compare) for one in (node.left, *node.comparators)}
    arguments = [one for one, name, _ in syntax.calls if name in ("add_argument", "option")]
    for node, channel in mentions:
        if id(node) not in ignored:
            holder = next((one for one in arguments if start(one) <= start(node) < end(one)), None)
            option = next((one for one in options if holder is not None and one.line == holder.lineno), None)
            needed = id(node) in required and not around.is_conditional(start(node))
            yield ChannelUse(syntax.mark(node), channel, str(node.value), needed, option)


def _channel(text: object) -> str | None:
    if not isinstance(text, str) or not text.startswith(("SM_CHANNEL_", "/opt/ml/input/data/")):
        return None
    match = _CHANNEL_VARIABLE.fullmatch(text) or CHANNEL_FOLDER.fullmatch(text)
    return match[1] if match is not None else None
