"""Output of ``image build | push | inspect``: steps on standard error, the result on standard output."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from types import TracebackType

import click
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import print_next
from smdp_launch.cli.render.terminal.bars import progress_on_stderr
from smdp_launch.cli.render.terminal.console import Console, visible
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.image.build import Built
from smdp_launch.image.inspection import INSPECTION_VERSION, ImageFact, Inspection
from smdp_launch.image.push import Pushed
from smdp_launch.image.verdict import RULE, judge
from smdp_launch.units import count, size, titled

#: The lines with which docker, podman and buildah start a step.
_STEP = re.compile(r"(?:\[\d+/\d+\] )?(?:STEP|Step) [\d/]+ ?:? .*|#\d+ \[[^\]]*\d+/\d+\] .*")
_STEP_WIDTH = 110


class BuildView:
    """The steps of a build or push on standard error, with the seconds since the start. The rest of the tool's output
    is shown only in an error."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._start = 0.0
        self._bar = progress_on_stderr(SpinnerColumn(), TextColumn(f"{tool} is running"), TimeElapsedColumn())

    def __enter__(self) -> BuildView:
        self._start = time.monotonic()
        click.echo(f"using {self._tool}", err=True)
        self._bar.add_task("")
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if error is None:
            click.echo(f"finished in {time.monotonic() - self._start:.0f} s", err=True)

    def line(self, text: str) -> None:
        if _STEP.fullmatch(text) or text.startswith(("Copying ", "Pushed", "Writing manifest")):
            step = f"{time.monotonic() - self._start:5.0f} s  {visible(text[:_STEP_WIDTH])}"
            self._bar.console.print(Text(step), soft_wrap=True)

    def built(self, image: Built) -> None:
        if not image.fresh:
            click.echo("the same image exists locally (--rebuild builds it again)", err=True)
        click.echo(image.reference)
        print_next(f"smdp-launch image push {image.reference} --create")

    def pushed(self, image: Pushed) -> None:
        if not image.fresh:
            click.echo("the repository has this tag already (--again pushes it again)", err=True)
        click.echo(image.uri)
        print_next("set `image:` in job.yaml to the URI, then: smdp-launch validate")


def print_inspection_json(inspection: Inspection) -> None:
    verdict = judge(inspection)
    document = {
        "inspection": INSPECTION_VERSION,
        **asdict(inspection),
        "rule": {"code": RULE, "says": verdict.says, "reason": verdict.reason},
    }
    print_document(document)


def print_inspection(inspection: Inspection) -> None:
    verdict = judge(inspection)
    rows = [
        ("image", inspection.uri),
        ("digest", inspection.digest),
        ("platform", inspection.platform),
        ("size", f"{size(inspection.size)} compressed, {count(inspection.layers, 'layer')}"),
        ("CUDA", _stated(inspection.cuda)),
        ("framework", _stated(inspection.framework)),
        ("Python", _stated(inspection.python)),
        ("engine", _stated(inspection.engine)),
        ("command", " ".join([*inspection.entrypoint, *inspection.command]) or "-"),
        *titled("labels", [f"{name}={value}" for name, value in sorted(inspection.labels.items())]),
        *titled("environment", [f"{name}={value}" for name, value in sorted(inspection.environment.items())]),
        ("CUDA 11 rule", f"{verdict.says}: {verdict.reason}"),
    ]
    print_rows(Console(highlight=False), rows)
    print_next("set `image:` in job.yaml to the URI, then: smdp-launch validate")


def _stated(fact: ImageFact | None) -> str:
    return "not stated by the image" if fact is None else f"{fact.value} ({fact.source})"
