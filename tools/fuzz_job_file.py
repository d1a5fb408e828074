"""Check random job files, guided by code coverage, and print the time and memory that they took.

Exits with 1 and keeps the file if a check raises an exception, takes more than 2 s of a processor, or needs more than
500 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["smdp_launch"]):
    from smdp_launch.checking.job import check_job
    from smdp_launch.cli.render.diagnostics import diagnostics_text
    from smdp_launch.diagnostics import has_errors
    from smdp_launch.planning.prepare import make_plan

ROOT = Path(__file__).parents[1]
NOW = datetime(2026, 11, 21, tzinfo=timezone.utc)
SLOWEST_ALLOWED_S = 2.0
LARGEST_ALLOWED = 500_000_000  # bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="smdp-fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    for name in ("scripts", "digits"):  # the folders that the sound files need
        shutil.copytree(ROOT / "tests/launcher/good" / name, folder / name)
    for directory in (ROOT / "tests/launcher/good", ROOT / "tests/launcher/golden", ROOT / "templates/jobs"):
        for number, file in enumerate(sorted(directory.rglob("*.yaml"))):
            (corpus / f"{directory.name}-{number}").write_bytes(file.read_bytes())
    fuzzer = Fuzzer(folder)
    options = [f"-max_total_time={arguments.seconds}", "-max_len=65536", f"-artifact_prefix={folder}/", "-timeout=30"]
    atheris.Setup([sys.argv[0], *options, "-rss_limit_mb=2000", "-verbosity=0", str(corpus)], fuzzer.one)
    atheris.Fuzz()


class Fuzzer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "job.yaml"
        self.ran = self.planned = 0
        self.slowest = 0.0
        self.pid = os.getpid()
        # libFuzzer exits without running Python's cleanup, so the results are printed at intervals.
        self.printed_at = time.monotonic()

    def one(self, content: bytes) -> None:
        self.path.write_bytes(content)
        begin = time.process_time()
        job = check_job(self.path, environ={"X": "1"})
        json.dumps(job.to_json())
        if job.diagnostics:
            diagnostics_text(job.diagnostics)
        if not has_errors(job.diagnostics):
            self.planned += 1
            make_plan(job, NOW, 0xBEEF).to_json()
        took = time.process_time() - begin
        self.ran += 1
        self.slowest = max(self.slowest, took)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if took > SLOWEST_ALLOWED_S or peak > LARGEST_ALLOWED:
            raise RuntimeError(f"{took:.1f} s, {peak / 1e6:.0f} MB: {self.path}")
        if time.monotonic() - self.printed_at > 10:
            self.printed_at = time.monotonic()
            worst = f"slowest {self.slowest:.2f} s of a processor, {peak / 1e6:.0f} MB at most"
            print(f"{self.ran} files, {self.planned} of them planned; {worst}", flush=True)


if __name__ == "__main__":
    main()
