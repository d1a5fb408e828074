"""A diagnosis for a person: the verdict, its figures, the workers, and what to do first."""

from __future__ import annotations

from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows, wrapped
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.diagnosis.advice import advice
from smdp_launch.diagnosis.blame import INPUT
from smdp_launch.diagnosis.texts import extremes, figures, milliseconds, percent, sentence
from smdp_launch.diagnosis.verdict import UNKNOWN, Verdict
from smdp_launch.plain_text import without_controls


def print_diagnosis(verdict: Verdict, job: str | None) -> None:
    """``job``: its name; None for a saved log."""
    console = Console(highlight=False)
    if job is not None:
        console.print(Text(job, "bold"), soft_wrap=True)
    style = "bold green" if verdict.cause == "computing" else "bold yellow"
    _print(console, Text(without_controls(sentence(verdict)), style))
    for line in verdict.missing:
        _print(console, Text(line))
    if verdict.cause == UNKNOWN:
        return
    if verdict.workers:
        console.print()
        print_rows(console, figures(verdict))
        console.print()
        _print_workers(console, verdict)
    first = advice(verdict)
    if first:
        console.print(Text("\nWhat to do first", "bold"))
        print_rows(console, [(f"{index}.", text) for index, text in enumerate(first, 1)])


def _print_workers(console: Console, verdict: Verdict) -> None:
    shown = extremes(verdict.workers)
    if len(shown) < len(verdict.workers):
        _print(console, Text(f"{len(shown)} of {len(verdict.workers)} workers: the slowest and the fastest"))

    def share(*causes: str) -> list[str]:
        return [percent(sum(one.shares[cause] for cause in causes)) for one in shown]

    def phase(*names: str) -> list[str]:
        return [percent(sum(one.phases[name] for name in names) / one.step_s) for one in shown]

    columns = [
        Column("rank", [str(one.rank) for one in shown]),
        Column("host", [one.host for one in shown], drop=5),
        Column("bound by", [one.cause for one in shown]),
        Column("own", [milliseconds(one.own_s) for one in shown]),
        Column("input", share(*INPUT)),
        Column("computing", share("computing"), drop=4),
        Column("exchange", phase("exchange")),
        Column("checkpoints", phase("checkpoint"), drop=2),
        Column("logging", phase("logging"), drop=1),
        Column("evaluation", phase("evaluation"), drop=3),
    ]
    print_table(console, columns)


def _print(console: Console, text: Text) -> None:
    for line in wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)
