"""The table of options in docs/explanation/engine.md equals the engine's list."""

import ctypes
import re
from pathlib import Path
from typing import List, Tuple

import c_interface

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "engine.md"


class Option(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("name", "type", "unit", "default", "doc")]


def options() -> List[Tuple[str, ...]]:
    functions = c_interface.Library(c_interface.installed()).functions
    option, found = Option(), []
    while functions.smdp_option_info(len(found), ctypes.byref(option)) == 0:
        found.append(tuple(getattr(option, name).decode() for name, _ in Option._fields_))
    return found


def test_options_table_equals_the_engines_list() -> None:
    rows = re.findall(r"^\| `(SMDP_\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert [tuple(cell.strip() for cell in row) for row in rows] == options()
