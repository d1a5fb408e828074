"""``python -m smdp_engine.trace``: merge and summarize timelines, show flight records."""

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from .errors import TraceError
from .merging import merge
from .records import describe
from .report import summary


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return the exit code: 0, or 4 if a file cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        sys.stdout.write(_run(options) + "\n")
    except (TraceError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 4
    return 0


def _run(options: argparse.Namespace) -> str:
    if options.command == "merge":
        count = merge(options.out, options.files)
        return f"{options.out}: {count:,} events. Open it at ui.perfetto.dev or chrome://tracing."
    return summary(options.files) if options.command == "summary" else describe(options.files)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m smdp_engine.trace", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    merging = commands.add_parser("merge", help="merge the timelines of all ranks into one Chrome trace")
    merging.add_argument("out", type=Path, help="the file to write")
    for command, help_text in (
        (merging, ""),
        (commands.add_parser("summary", help="show the late ranks and the time of each phase"), ""),
        (commands.add_parser("records", help="show the last operations before a failure"), "flight_N, or their folder"),
    ):
        command.add_argument("files", type=Path, nargs="+", help=help_text or "timeline_rank_N.json, or their folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
