"""Runs PyTorch's distributed suite on Gloo and on smddp: smddp must pass every test that Gloo passes.

known.json lists exceptions with their reasons. Exits with 1 if a test that Gloo passes fails on smddp and is not
listed, or if a listed test passes.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Dict, List

import suite
import workers
from workers import PASSED, SKIPPED, Verdict

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "build" / "conformance"


def main() -> int:
    arguments = _arguments()
    never = suite.never_asked()
    unknown = set(arguments.only) - set(suite.names())
    if unknown:
        sys.exit(f"not in torch's suite: {', '.join(sorted(unknown))}")
    names = arguments.only or [name for name in suite.names() if name not in never]
    gloos = _baseline(names, arguments)
    asked = [name for name in names if gloos[name].kind == PASSED]
    suite.register_ours()
    ours = _timed(asked, suite.OURS, arguments)
    wrong = _compare(asked, ours, _known(arguments.known), arguments.verbose)
    passed = sum(verdict.kind == PASSED for verdict in ours.values())
    listed = len(asked) - passed - sum(ours[name].kind != PASSED for name in wrong)
    skipped = sum(gloos[name].kind == SKIPPED for name in names)
    print(
        f"gloo: {len(asked)} passed of {len(names)}, {skipped} skipped; "
        f"smddp: {passed} passed, {listed} listed with a reason, {len(wrong)} wrong"
    )
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="run only these tests")
    parser.add_argument(
        "--baseline", choices=("kept", "fresh"), default="kept", help="Gloo's results of an earlier run"
    )
    parser.add_argument("--known", type=Path, default=HERE / "known.json", help="the list of exceptions")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder for Gloo's results")
    parser.add_argument("--lanes", type=int, default=2, help="tests at a time")
    parser.add_argument("--deadline", type=float, default=60, help="seconds for one test")
    parser.add_argument("--verbose", action="store_true", help="print whole tracebacks")
    return parser.parse_args()


def _timed(names: List[str], backend: str, arguments: argparse.Namespace) -> Dict[str, Verdict]:
    began = time.monotonic()
    verdicts = workers.run(names, backend, lanes=arguments.lanes, deadline_s=arguments.deadline)
    print(f"{backend}: {len(names)} tests in {time.monotonic() - began:.0f} s", flush=True)
    return verdicts


def _baseline(names: List[str], arguments: argparse.Namespace) -> Dict[str, Verdict]:
    """Gloo's verdicts, stored in a file for this torch and these devices."""
    path = arguments.results / f"gloo-{suite.key()}.json"
    kept: Dict[str, Verdict] = {}
    if arguments.baseline == "kept" and path.exists():
        kept = {name: Verdict(**fields) for name, fields in json.loads(path.read_text()).items()}
    missing = [name for name in names if name not in kept]
    if missing:
        kept.update(_timed(missing, suite.GLOO, arguments))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: vars(verdict) for name, verdict in sorted(kept.items())}, indent=1))
    else:
        print(f"gloo: {len(names)} tests from {path}")
    return kept


def _known(path: Path) -> Dict[str, str]:
    return {test: cause["reason"] for cause in json.loads(path.read_text()) for test in cause["tests"]}


def _compare(asked: List[str], ours: Dict[str, Verdict], known: Dict[str, str], verbose: bool) -> List[str]:
    """Print the listed and the wrong tests; return the wrong ones."""
    wrong = []
    for name in asked:
        verdict = ours[name]
        if verdict.kind == PASSED and name in known:
            wrong.append(name)
            print(f"WRONG  {name}: passes, but is listed: {known[name]}")
        elif verdict.kind != PASSED and name in known:
            print(f"listed {name}: {known[name]}")
        elif verdict.kind != PASSED:
            wrong.append(name)
            print(f"WRONG  {name} {verdict.kind}: {verdict.reason if verbose else _gist(verdict.reason)}")
    return wrong


def _gist(reason: str) -> str:
    """The exception's line in a traceback."""
    for line in reversed(reason.partition("\nrank ")[0].splitlines()):
        if line and not line[0].isspace() and ("Error" in line.split(":")[0] or "Exception" in line.split(":")[0]):
            return line
    return reason.strip()


if __name__ == "__main__":
    sys.exit(main())
