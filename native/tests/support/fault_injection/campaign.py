"""Runs a campaign of random faults. Run it with ``inject_faults.py``, which loads the fault injector before it."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import c_interface
from lab import Lab

from fault_injection import table
from fault_injection.faults import KINDS, LAYOUTS, STATES, draw_fault
from fault_injection.job_runner import JobRunner, MemoryLimit

ATTEMPTS = 5  # to inject a fault: the job may make too few calls of the fault's kind


def _run_share(arguments: argparse.Namespace, share: int, results: multiprocessing.Queue[dict[str, object]]) -> None:
    states, layouts, kinds = (one.split(",") for one in (arguments.states, arguments.layouts, arguments.kinds))
    library = c_interface.Library(Path(arguments.library) if arguments.library else c_interface.installed())
    with Lab(2, None) as lab, MemoryLimit() as limit:
        runner = JobRunner(library, lab, limit)
        for number in range(arguments.first + share, arguments.first + arguments.faults, arguments.jobs):
            for attempt in range(ATTEMPTS):
                fault = draw_fault(number, arguments.seed + attempt * 1_000_003, states, layouts, kinds)
                verdict = runner.run(fault, arguments.time_factor)
                if verdict.injected:
                    break
            results.put({**table.row(verdict), "seed": arguments.seed})


def _campaign(arguments: argparse.Namespace) -> list[dict[str, object]]:
    del os.environ["LD_PRELOAD"]  # it is loaded, and the programs that create the hosts do not need it
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[dict[str, object]] = context.Queue()
    processes = [context.Process(target=_run_share, args=(arguments, job, results)) for job in range(arguments.jobs)]
    for process in processes:
        process.start()
    rows = []
    for _ in range(arguments.faults):
        rows.append(results.get(timeout=300))
        if arguments.out:
            with Path(arguments.out).open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    for process in processes:
        process.join()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="inject_faults.py", description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--kinds", default=",".join(KINDS), help="must contain kill, which is possible in every state")
    parser.add_argument("--jobs", type=int, default=4, help="jobs at a time")
    parser.add_argument("--time-factor", type=float, default=1.0, help="multiplies the time limits, for a busy machine")
    parser.add_argument("--library", help="the engine's library; by default that of the installed package")
    parser.add_argument("--out", help="file for the verdicts, one per line")
    parser.add_argument("--table", nargs="*", metavar="FILE", help="only print the table of these verdicts")
    arguments = parser.parse_args()
    for option, known in (("states", STATES), ("layouts", LAYOUTS), ("kinds", KINDS)):
        unknown = set(getattr(arguments, option).split(",")) - set(known)
        if unknown:
            parser.error(f"--{option}: unknown: {', '.join(sorted(unknown))} (known: {', '.join(known)})")
    if "kill" not in arguments.kinds.split(","):
        parser.error("--kinds must contain kill")
    if arguments.table:
        rows = [json.loads(line) for name in arguments.table for line in Path(name).read_text().splitlines()]
        sys.exit(table.show(rows, sorted({row["seed"] for row in rows})))
    began = time.monotonic()
    rows = _campaign(arguments)
    failed = table.show(rows, [arguments.seed])
    print(f"{len(rows)} faults in {time.monotonic() - began:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
