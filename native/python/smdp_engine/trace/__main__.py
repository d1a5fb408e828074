"""``python -m smdp_engine.trace``: merge timelines, tell what they say, show flight records."""

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from .errors import TraceError
from .merging import merge
from .records import describe
from .report import summary


def main(arguments: Optional[List[str]] = None) -> int:
    """Returns the exit code: 0, or 4 where a file cannot be used."""
    chosen = _parser().parse_args(arguments)
    try:
        sys.stdout.write(_run(chosen) + "\n")
    except (TraceError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 4
    return 0


def _run(chosen: argparse.Namespace) -> str:
    if chosen.command == "merge":
        count = merge(chosen.out, chosen.files)
        return f"{chosen.out}: {count:,} events. Open it at ui.perfetto.dev or chrome://tracing."
    return summary(chosen.files) if chosen.command == "summary" else describe(chosen.files)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m smdp_engine.trace", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    merging = commands.add_parser("merge", help="timelines of all ranks into one Chrome trace")
    merging.add_argument("out", type=Path, help="the file to write")
    for command, help_text in (
        (merging, ""),
        (commands.add_parser("summary", help="who was late, and where the time went"), ""),
        (commands.add_parser("records", help="the last operations before a failure"), "flight_N, or their folder"),
    ):
        command.add_argument("files", type=Path, nargs="+", help=help_text or "timeline_rank_N.json, or their folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
