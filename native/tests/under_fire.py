"""Random faults on real jobs: processes that are killed, stopped, out of memory or gone, scripts
that end early; links and connections that are cut or silent, descriptors that are closed.

    python native/tests/under_fire.py --faults 100 --seed 7 [--first 300] [--states hello,return] [--out FILE]

Every survivor must raise within the time that docs/engine.md states, name the victim and the phase, and leave nothing.
Ends with a table (states x layouts x kinds) and the seed, and with 1 when anything fell short. ``--first`` goes on
where an earlier slice of the same seed ended; ``--out`` collects the verdicts, from which ``--table`` makes that of
all slices. Needs root, for the hosts are network namespaces.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import c_interface
from fire import table
from fire.faults import STATES, draw_fault
from fire.lane import Lane, MemoryLimit
from lab import Lab
from preload import built

HERE = Path(__file__).resolve().parent
REDRAWS = 5  # of a fault that did not come about: the call it was to strike in was not made so often


def _strikes_itself(folder: Path) -> None:
    """Begins again with strike.cc before the C library."""
    library = built("fire/strike.cc", folder)
    ended = subprocess.run([sys.executable, *sys.argv], env={**os.environ, "LD_PRELOAD": str(library)}, check=False)
    sys.exit(ended.returncode)


def _drive(arguments: argparse.Namespace, lane: int, results: multiprocessing.Queue[dict[str, object]]) -> None:
    states = tuple(arguments.states.split(","))
    library = c_interface.Library(Path(arguments.library) if arguments.library else c_interface.installed())
    with Lab(2, None) as lab, MemoryLimit() as limit:
        road = Lane(library, lab, limit)
        for number in range(arguments.first + lane, arguments.first + arguments.faults, arguments.lanes):
            for again in range(REDRAWS):
                verdict = road.run(draw_fault(number, arguments.seed + again * 1_000_003, states), arguments.patience)
                if verdict.struck:
                    break
            results.put({**table.row(verdict), "seed": arguments.seed})


def _campaign(arguments: argparse.Namespace) -> list[dict[str, object]]:
    del os.environ["LD_PRELOAD"]  # it is in place, and no business of the programs that make the hosts
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[dict[str, object]] = context.Queue()
    lanes = [context.Process(target=_drive, args=(arguments, lane, results)) for lane in range(arguments.lanes)]
    for lane in lanes:
        lane.start()
    rows = []
    for _ in range(arguments.faults):
        rows.append(results.get(timeout=300))
        if arguments.out:
            with Path(arguments.out).open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    for lane in lanes:
        lane.join()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--lanes", type=int, default=4, help="jobs at a time")
    parser.add_argument("--patience", type=float, default=1.0, help="times the stated time, for a machine that is busy")
    parser.add_argument("--library", help="the engine's library; else that of the installed package")
    parser.add_argument("--out", help="file for the verdicts, one line each")
    parser.add_argument("--table", nargs="*", metavar="FILE", help="only the table of these verdicts")
    arguments = parser.parse_args()
    if arguments.table:
        rows = [json.loads(line) for name in arguments.table for line in Path(name).read_text().splitlines()]
        sys.exit(table.show(rows, sorted({row["seed"] for row in rows})))
    if "strike.so" not in os.environ.get("LD_PRELOAD", ""):
        with tempfile.TemporaryDirectory() as folder:
            _strikes_itself(Path(folder))
    began = time.monotonic()
    rows = _campaign(arguments)
    failed = table.show(rows, [arguments.seed])
    print(f"{len(rows)} faults in {time.monotonic() - began:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
