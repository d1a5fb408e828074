"""The verdicts as rows of a file, and the table of all faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fault_injection.faults import KINDS, LAYOUTS, STATES
from fault_injection.judge import Verdict


def row(verdict: Verdict) -> dict[str, Any]:
    fault = verdict.fault
    return {
        "number": fault.number,
        "state": verdict.state,
        "layout": fault.layout,
        "kind": fault.kind,
        "victim": fault.victim,
        "injected": verdict.injected,
        "healed": verdict.healed,
        "worst_s": verdict.worst_s,
        "failures": verdict.failures,
        "late": verdict.late,
        "fault": repr(fault),
    }


def _line(state: str, layout: str, rows: Sequence[dict[str, Any]]) -> str:
    kinds = [sum(1 for one in rows if one["kind"] == kind) for kind in KINDS]
    worst = [max((one["worst_s"] for one in rows if one["kind"] == kind), default=0.0) for kind in KINDS]
    cells = [f"{count} ({slowest:.2f})" if count else "-" for count, slowest in zip(kinds, worst, strict=True)]
    first = sum(1 for one in rows if one["victim"] == 0)
    late = sum(1 for one in rows if one["late"])
    failed = sum(1 for one in rows if one["failures"])
    return " | ".join(["", state, layout, str(len(rows)), str(first), *cells, str(late), str(failed), ""]).strip()


def show(rows: Sequence[dict[str, Any]], seeds: Sequence[int]) -> int:
    """Print the table; return 1 if a requirement is not met."""
    injected = [one for one in rows if one["injected"]]
    bad = [one for one in injected if one["failures"] or one["late"]]
    for one in bad:
        print(f"fault {one['number']}: {one['fault']}")
        for text in [*one["failures"], *one["late"]]:
            print(f"    {text}")
    print(f"seeds {', '.join(map(str, seeds))}; counts, and in brackets the longest time to raise in seconds")
    print("| state | layout | faults | rank 0 | " + " | ".join(KINDS) + " | late | failed |")
    print("|---" * (6 + len(KINDS)) + "|")
    for state in STATES:
        for layout in LAYOUTS:
            matching = [one for one in injected if one["state"] == state and one["layout"] == layout]
            if matching:
                print(_line(state, layout, matching))
    healed = sum(1 for one in injected if one["healed"])
    missed = len(rows) - len(injected)
    print(f"{len(injected)} faults injected, {missed} not injected, {healed} recovered, {len(bad)} failed")
    return 1 if bad else 0
