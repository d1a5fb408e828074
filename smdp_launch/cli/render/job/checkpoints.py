"""Messages about a job's checkpoints, for a person."""

from __future__ import annotations

from datetime import datetime, timezone

from rich.text import Text

from smdp_launch.jobs.checkpoints.watch import CheckpointEvent, CheckpointKept, CheckpointsStalled
from smdp_launch.plain_text import without_controls
from smdp_launch.units import count, duration, size

_ADVICE = "check the hosts' disks, rank 0 of the script, and the permission s3:PutObject"


def news_text(news: CheckpointEvent) -> Text:
    if isinstance(news, CheckpointsStalled):
        return Text(f"{without_controls(_gap(news))}\n  {_loss(news)}\n  {_ADVICE}", "bold yellow")
    if isinstance(news, CheckpointKept):
        message = f"new checkpoint in {news.where} after {duration(round(news.lasted))}: {_last(news)}"
        return Text(without_controls(message), "bold")
    message = f"the checkpoints in {news.where} cannot be listed: {news.reason}"
    return Text(without_controls(message), "bold yellow")


def _gap(news: CheckpointsStalled) -> str:
    since = f"{datetime.fromtimestamp(news.time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    message = f"no new checkpoint in {news.where} for {duration(round(news.lasted))}, since {since}"
    if news.newest is None:
        older = f"; {count(news.files, 'older file')} there" if news.files else ""
        return f"{message}, when training started{older}"
    longest = "" if news.longest is None else f"; the longest gap before was {duration(round(news.longest))}"
    return f"{message}: {_last(news)}{longest}"


def _last(news: CheckpointsStalled | CheckpointKept) -> str:
    return f"the newest is {news.newest}; {count(news.files, 'file')} ({size(news.size)}) in all"


def _loss(news: CheckpointsStalled) -> str:
    """The loss of a crash now, in steps if the script reports them."""
    if news.step_now is None:
        return "a crash now would lose all training since then"
    first = f"from step {news.step_then}" if news.step_then is not None else "since then, up"
    return f"a crash now would lose the training {first} to step {news.step_now}"
