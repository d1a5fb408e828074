"""The console script ``smdp-launch``. It handles Ctrl-C before it imports the command line."""

import sys

from smdp_launch.signals.interrupts import handle_interrupts


def main() -> None:
    """Run the command line and exit with a code of docs/reference/exit-codes.md."""
    handle_interrupts()
    try:
        from smdp_launch.cli import main as run

        run()
    except KeyboardInterrupt:  # between the imports
        from smdp_launch.errors import ExitCode

        sys.stderr.write("interrupted\n")
        sys.exit(ExitCode.INTERRUPTED)
