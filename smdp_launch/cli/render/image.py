"""What ``image build | push | inspect`` says: steps while it works, and the name that is wanted at the end."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict
from types import TracebackType

import click

from smdp_launch.cli.render.next import say_next
from smdp_launch.cli.render.terminal.console import Console, visible
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.image.build import Built
from smdp_launch.image.inspection import INSPECTION_VERSION, Finding, Inspection
from smdp_launch.image.push import Pushed
from smdp_launch.image.verdict import RULE, judge
from smdp_launch.units import count, size, titled

#: The lines in which docker, podman and buildah announce a step.
_STEP = re.compile(r"(?:\[\d+/\d+\] )?(?:STEP|Step) [\d/]+ ?:? .*|#\d+ \[[^\]]*\d+/\d+\] .*")
_TERMINAL_WIDTH = 110


class BuildView:
    """Steps on standard error with the seconds since the start; the rest of the tool's output only in an error."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._start = 0.0

    def __enter__(self) -> BuildView:
        self._start = time.monotonic()
        click.echo(f"with {self._tool}", err=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            click.echo(f"done after {time.monotonic() - self._start:.0f} s", err=True)

    def line(self, text: str) -> None:
        if _STEP.fullmatch(text) or text.startswith(("Copying ", "Pushed", "Writing manifest")):
            seconds = time.monotonic() - self._start
            click.echo(f"{seconds:5.0f} s  {visible(text[:_TERMINAL_WIDTH])}", err=True)

    def built(self, found: Built) -> None:
        if not found.fresh:
            click.echo("this very image is here already (--rebuild builds it again)", err=True)
        click.echo(found.reference)
        say_next(f"smdp-launch image push {found.reference} --create")

    def pushed(self, found: Pushed) -> None:
        if not found.fresh:
            click.echo("that tag is there already (--again pushes it again)", err=True)
        click.echo(found.uri)
        say_next("write the URI as `image:` into job.yaml, then: smdp-launch validate")


def show_json(found: Inspection) -> None:
    verdict = judge(found)
    document = {
        "inspection": INSPECTION_VERSION,
        **asdict(found),
        "rule": {"code": RULE, "says": verdict.says, "reason": verdict.reason},
    }
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def show_inspection(found: Inspection) -> None:
    verdict = judge(found)
    rows = [
        ("image", found.uri),
        ("digest", found.digest),
        ("platform", found.platform),
        ("size", f"{size(found.size)} compressed, {count(found.layers, 'layer')}"),
        ("CUDA", _told(found.cuda)),
        ("framework", _told(found.framework)),
        ("Python", _told(found.python)),
        ("engine", _told(found.engine)),
        ("command", " ".join([*found.entrypoint, *found.command]) or "-"),
        *titled("labels", [f"{name}={value}" for name, value in sorted(found.labels.items())]),
        *titled("environment", [f"{name}={value}" for name, value in sorted(found.environment.items())]),
        ("CUDA 11 rule", f"{verdict.says}: {verdict.reason}"),
    ]
    print_rows(Console(highlight=False), rows)
    say_next("write the URI as `image:` into job.yaml, then: smdp-launch validate")


def _told(found: Finding | None) -> str:
    return "the image does not say" if found is None else f"{found.value} ({found.source})"
