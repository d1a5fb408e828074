"""``python -m smdp_engine.adapters``: the adapters of this installation, and which fits; ``build`` builds one."""

import argparse
import os
import sys
from typing import List, Optional

from . import FRAMEWORKS, AdapterMissing, build, cache_folder, check, shipped
from .cache import clear


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m smdp_engine.adapters", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("list", help="the adapters of this installation, and which fits (default)")
    commands.add_parser("clear", help="remove the adapters that were built here")
    building = commands.add_parser("build", help="build the adapter for the installed framework into the cache")
    building.add_argument("framework", choices=FRAMEWORKS)
    chosen = parser.parse_args(arguments)
    out = sys.stdout
    if chosen.command == "build":
        try:
            out.write(f"{build(chosen.framework)}\n")
        except AdapterMissing as error:
            sys.stderr.write(f"{error}\n")
            return 1
        return 0
    if chosen.command == "clear":
        out.write(f"removed the adapters in {clear()}\n")
        return 0
    for one in shipped():
        out.write(f"{one.path}\n")
    out.write(f"built here: {cache_folder()}\n")
    for framework in FRAMEWORKS:
        out.write(f"{check(framework).sentence}\n")
    return 0


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has exited, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
