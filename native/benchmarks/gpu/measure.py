"""Runs the tests and the measurements that need a GPU, one after the other, and prints a table of what ran.

Every row has its limit and its result: ``passed``, ``FAILED``, ``no limit``, or ``not run`` with the reason. The
command exits with 1 if a limit was not met, with 2 if nothing could run. Programs that would begin after the time
budget are not started.

Example: ``make test-gpu``, or ``python native/benchmarks/gpu/measure.py --only copies,groups``
"""

import argparse
import contextlib
import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List, Optional
from xml.etree import ElementTree

import figures
import job
import machine

#: In the order in which they run: the shortest and the most important first.
PROGRAMS = ("tests", "copies", "within", "beside", "groups", "faults", "losses", "steps", "mnist", "sanitizer")
#: The rows of a program that was not started.
WHAT = {
    "tests": "tests/gpu",
    "copies": "copies of a bucket of 25 MiB against pinned copies",
    "within": "sums within the host first: values and time",
    "beside": "matrix products slowed by an exchange",
    "groups": "bytes on the GPU after 1,000 groups",
    "faults": "faults of a GPU",
    "losses": "transformer of 124 M parameters: losses against NCCL or Gloo",
    "steps": "transformer, 2x4 ranks: step / bound",
    "mnist": "MNIST template: losses against Gloo",
    "sanitizer": "compute-sanitizer",
}
LIMIT_S = 900
#: What a program may take beyond the budget.
BEYOND_S = 240
_GRACE_S = 60
TESTS = ["tests/gpu/test_gpu.py"]


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--out", type=Path, default=job.ROOT / "build" / "gpu", help="the folder for figures and logs")
    parser.add_argument("--only", default=",".join(PROGRAMS), help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--budget-s", type=float, default=1500, help="seconds after which no program is started")
    parser.add_argument("--keep", action="store_true", help="keep the rows of other programs from an earlier run")
    arguments = job.parsed(parser)
    unknown = [one for one in arguments.only.split(",") if one not in PROGRAMS]
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is not one of {', '.join(PROGRAMS)}")
    return arguments


def bounded(command: List[str], log: Path, limit_s: float) -> int:
    """The exit code of a command, which is ended at its limit.

    Raises:
        subprocess.TimeoutExpired: it was ended.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=job.ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            return process.wait(limit_s)
        finally:
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a program that still runs; it ends its ranks."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        process.kill()
        process.wait()


def run_tests(out: Path, limit_s: float) -> List[figures.Figure]:
    """tests/gpu, without the packages that the other tests need."""
    name = WHAT["tests"]
    missing = [one for one in ("pytest", "pytest_timeout") if importlib.util.find_spec(one) is None]
    if missing:
        return [figures.not_run(name, f"{' and '.join(missing)} is not installed")]
    results = out / "tests.xml"
    results.unlink(missing_ok=True)
    settings = ["-c", "native/tests/matrix.ini", "--rootdir", "native/tests", "--noconftest", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *settings, f"--junitxml={results}", *TESTS]
    code = bounded(command, out / "tests.log", limit_s)
    if not results.exists():
        return [figures.Figure(name, float("nan"), at_least=1, note=f"pytest exited with {code}: {out / 'tests.log'}")]
    return of_tests(ElementTree.parse(results).getroot(), name)


def of_tests(root: Any, name: str) -> List[figures.Figure]:
    cases = list(root.iter("testcase"))
    skipped = [one.find("skipped") for one in cases if one.find("skipped") is not None]
    failed = [one.get("name") for one in cases if one.find("failure") is not None or one.find("error") is not None]
    if skipped and len(skipped) == len(cases):
        return [figures.not_run(name, skipped[0].get("message", ""))]
    note = f"{len(cases)} tests" + (f"; failed: {', '.join(failed)}" if failed else "")
    if skipped:
        note += f"; {len(skipped)} skipped: {skipped[0].get('message', '')}"
    passed = len(cases) - len(failed) - len(skipped)
    return [figures.Figure(f"{name}: passed of {len(cases)}", passed, at_least=len(cases), note=note)]


def run_program(name: str, arguments: argparse.Namespace, limit_s: float) -> List[figures.Figure]:
    path = arguments.out / f"{name}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, str(job.HERE / f"{name}.py"), "--device", arguments.device, "--json", str(path)]
    command += ["--small"] if arguments.small else []
    command += [word for one in arguments.set for word in ("--set", one)]
    log = arguments.out / f"{name}.log"
    code = bounded(command, log, limit_s)
    if path.exists():
        return figures.read(path)
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    reason = f"exited with {code}: {lines[-1] if lines else 'no output'} ({log})"
    return [figures.Figure(WHAT[name], float("nan"), at_least=1, note=reason[-300:])]


def run_one(name: str, arguments: argparse.Namespace, left_s: float) -> List[figures.Figure]:
    """``left_s``: seconds of the budget."""
    began = time.monotonic()
    limit_s = min(LIMIT_S, left_s + BEYOND_S)
    try:
        found = run_tests(arguments.out, limit_s) if name == "tests" else run_program(name, arguments, limit_s)
    except subprocess.TimeoutExpired:
        note = f"had not finished after {limit_s:.0f} s ({arguments.out / name}.log)"
        found = [figures.Figure(WHAT[name], float("nan"), at_least=1, note=note)]
    sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")
    for one in found:
        sys.stderr.write(f"  {one.line()}\n")
    return found


def kept(path: Path, found: Dict[str, Any], only: List[str]) -> List[figures.Figure]:
    """The rows of other programs than ``only`` that an earlier run wrote.

    Raises:
        RuntimeError: it ran on another machine.
    """
    if not path.exists():
        return []
    before = json.loads(path.read_text(encoding="utf-8"))["machine"]
    other = [one for one in ("device", "gpus", "torch", "processor") if before[one] != found[one]]
    if other:
        was = ", ".join(f"{one} {before[one]}" for one in other)
        raise RuntimeError(f"--keep: {path} is of another machine ({was}): set another folder with --out")
    return [one for one in figures.read(path) if one.details["program"] not in only]


def of_program(name: str, rows: List[figures.Figure]) -> List[figures.Figure]:
    return [replace(one, details={**one.details, "program": name}) for one in rows]


def why_not(name: str, arguments: argparse.Namespace, no_gpu: Optional[str], began: float) -> str:
    if no_gpu:
        return no_gpu
    if name == "tests" and arguments.device != "cuda":
        return "the tests need a GPU"
    if time.monotonic() - began > arguments.budget_s:
        return f"the budget of {arguments.budget_s:g} s was spent"
    return ""


def heading(found: Dict[str, Any], arguments: argparse.Namespace) -> List[str]:
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    lines = [f"python native/benchmarks/gpu/measure.py {' '.join(sys.argv[1:])}".rstrip(), when, *machine.lines(found)]
    if arguments.device != "cuda":
        lines.append("The GPU is emulated on the CPU: the programs ran, their times and bytes are not those of a GPU.")
    return lines


def main() -> int:
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path, only = arguments.json or arguments.out / "figures.json", arguments.only.split(",")
    try:
        found = machine.describe(arguments.device)
        rows = kept(path, found, only) if arguments.keep else []
    except RuntimeError as error:
        sys.stderr.write(f"test-gpu: {error}\n")
        return 2
    began = time.monotonic()
    for name in only:
        reason = why_not(name, arguments, machine.why_no_gpu(found), began)
        left_s = arguments.budget_s - (time.monotonic() - began)
        new = [figures.not_run(WHAT[name], reason)] if reason else run_one(name, arguments, left_s)
        rows = sorted([*rows, *of_program(name, new)], key=lambda one: PROGRAMS.index(one.details["program"]))
        # After each program, so that the figures survive a machine that is taken away.
        figures.write(path, rows, machine=found)
        text = "\n".join([*heading(found, arguments), "", figures.table(rows)]) + "\n"
        (arguments.out / "table.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    results = [one.result for one in rows]
    kinds = (figures.PASSED, figures.FAILED, figures.NO_LIMIT, figures.NOT_RUN)
    counts = ", ".join(f"{results.count(one)} {one}" for one in kinds)
    sys.stdout.write(f"\n{counts}; {arguments.out / 'table.md'}\n")
    if figures.FAILED in results:
        return 1
    return 2 if set(results) <= {figures.NOT_RUN} else 0


if __name__ == "__main__":
    sys.exit(main())
