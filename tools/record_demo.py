"""Record the two pictures of README.md and docs/index.md: real output, drawn as SVG.

    python tools/record_demo.py

writes docs/assets/demo.svg (the commands of `make demo`) and docs/assets/rehearsal.svg (the timeline of a rehearsal
with a spot interruption). It runs both jobs locally, in about three minutes, with the packages of `make setup`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "docs" / "assets"
JOB = "templates/jobs/mnist.yaml"
LAUNCH = f"launch {JOB} --local --hosts 2 --workers-per-host 2"
REHEARSE = (
    f"rehearse spot {JOB} --hosts 2 --workers-per-host 2 --for 5 --grace 20 --set script.hyperparameters.epochs=40"
)
#: Lines of the launch that the picture shows; the others are the job's effective configuration and the hosts' logs.
SHOWN = re.compile(r"^ +\d+\.\d s  |^step |^result|^\S+ completed")
COLUMNS, LINE_HEIGHT, MARGIN = 92, 19, 14


def main() -> None:
    ASSETS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "templates", folder / "templates")
        subprocess.run([sys.executable, "templates/scripts/prepare_mnist.py", "data/mnist"], cwd=folder, check=True)
        shown = [line for line in run(LAUNCH, folder) if SHOWN.match(line)]
        lines = [
            f"$ smdp-launch validate {JOB}",
            *run(f"validate {JOB}", folder),
            "",
            f"$ smdp-launch {LAUNCH}",
            *shown,
        ]
        (ASSETS / "demo.svg").write_text(terminal(lines))
        run(f"{REHEARSE} --report report.html", folder)
        (ASSETS / "rehearsal.svg").write_text(timeline((folder / "report.html").read_text()))


def run(arguments: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "smdp_launch", *arguments.split()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return (ran.stdout + ran.stderr).splitlines()


def terminal(lines: list[str]) -> str:
    """An SVG that shows ``lines`` as a terminal does; commands, which begin with `$`, are bold."""
    lines = [part for line in lines for part in textwrap.wrap(line, COLUMNS, drop_whitespace=False) or [""]]
    height = 2 * MARGIN + LINE_HEIGHT * len(lines)
    rows = []
    for number, line in enumerate(lines):
        weight = "bold" if line.startswith("$") else "normal"
        place = f'x="{MARGIN}" y="{MARGIN + LINE_HEIGHT * (number + 0.75):.1f}"'
        rows.append(f'<text {place} font-weight="{weight}" xml:space="preserve">{escape(line)}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * 8 + 2 * MARGIN} {height}" role="img">',
            "<!-- Written by tools/record_demo.py from a real run. -->",
            '<rect width="100%" height="100%" rx="6" fill="#14171c"/>',
            '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13" fill="#e6e9ed">',
            *rows,
            "</g>",
            "</svg>\n",
        ]
    )


def timeline(report: str) -> str:
    """The plot of a rehearsal's HTML report as a file of its own, without the marks of single steps."""
    (plot,) = re.findall(r'<svg class="plot".*?</svg>', report, re.DOTALL)
    (style,) = re.findall(r"<style>.*?</style>", report, re.DOTALL)
    opening, rest = re.sub(r"<circle [^>]*><title>step.*?</circle>", "", plot).split(">", 1)
    note = "<!-- Written by tools/record_demo.py from the report of a real rehearsal. -->"
    ground = '<rect width="100%" height="100%" style="fill:var(--ground)"/>'
    return f"{opening}>{note}{style}{ground}{rest}\n"


if __name__ == "__main__":
    main()
