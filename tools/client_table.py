"""Write the table of docs/reference/clients.md from tests/clients/clients.json, whose rows name their tests.

python tools/client_table.py            # rewrite it
python tools/client_table.py --check    # report whether it is up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "clients.md"
ROWS = ROOT / "tests" / "clients" / "clients.json"
_BEGIN, _END = "<!-- table -->\n", "<!-- end of the table -->\n"
_HEAD = "| client | versions | works | limits | tested by |\n|---|---|---|---|---|\n"


def main() -> int:
    text = PAGE.read_text()
    wanted = page(text)
    if "--check" in sys.argv:
        if text != wanted:
            print("docs/reference/clients.md is stale: run tools/client_table.py")
        return int(text != wanted)
    PAGE.write_text(wanted)
    return 0


def rows() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(ROWS.read_text())
    return loaded


def page(text: str) -> str:
    """The page with the table of the current rows."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{_HEAD}{''.join(map(_row, rows()))}\n{_END}{after}"


def _row(row: Mapping[str, Any]) -> str:
    files = dict.fromkeys(test.partition("::")[0] for test in row["tests"])
    tests = ", ".join(f"`{file}`" for file in files)
    return f"| {row['client']} | {row['versions']} | {row['works']} | {row['limits']} | {tests} |\n"


if __name__ == "__main__":
    sys.exit(main())
