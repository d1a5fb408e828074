"""Repeats the network probe of eight hosts with real links, and counts how often it finds exactly what is wrong.

    python containers/entrypoint/benchmarks/probe_verdicts.py [--runs 20]

Needs root and a quiet machine: the probe has its usual limit of 3 s. The time is that of all rounds; no worker
waits for them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import uuid
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]

from entrypoint_support import links  # noqa: E402
from entrypoint_support.probes import SCENARIOS, Scenario, job, problems_of  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", default="3", help="limit of the probe (SMDP_NETWORK_PROBE_S)")
    options = parser.parse_args()
    reason = links.refusal()
    if reason is not None:
        _print(f"no hosts with links on this machine: {reason}")
        return 2
    wrong = 0
    for name, scenario in SCENARIOS.items():
        seconds, right = [], 0
        for _ in range(options.runs):
            is_right, took = _run(scenario, options.seconds)
            right += is_right
            seconds.append(took)
        wrong += options.runs - right
        times = f"{statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s"
        _print(f"{name}: right in {right} of {options.runs} runs; measured for {times}")
    return 1 if wrong else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(scenario: Scenario, limit: str) -> tuple[bool, float]:
    with tempfile.TemporaryDirectory() as folder, job(Path(folder), uuid.uuid4().hex, scenario) as started:
        started.start(SMDP_NETWORK_PROBE_S=limit)
        event = started.event()
        codes = started.finish()
        is_right = problems_of(event) == scenario.problems and codes == [0] * len(codes)
        if not is_right:
            _print("\n".join(line for line in started.hosts[0].lines if "] network:" in line))
        return is_right, float(event["seconds"])


if __name__ == "__main__":
    sys.exit(main())
