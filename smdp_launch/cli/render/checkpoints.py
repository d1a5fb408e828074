"""News of a job's checkpoints, for a person."""

from __future__ import annotations

from datetime import datetime, timezone

from rich.text import Text

from smdp_launch.jobs.checkpoints.watch import CheckpointKept, CheckpointNews, CheckpointsStalled
from smdp_launch.plain_text import without_controls
from smdp_launch.units import count, duration, size

_LOOK_AT = "look at the hosts' disk, at the script's rank 0, at the role's s3:PutObject"


def told_news(news: CheckpointNews) -> Text:
    if isinstance(news, CheckpointsStalled):
        return Text(f"{without_controls(_silence(news))}\n  {_at_stake(news)}\n  {_LOOK_AT}", "bold yellow")
    if isinstance(news, CheckpointKept):
        told = f"checkpoints come to {news.where} again, after {duration(round(news.lasted))}: {_last(news)}"
        return Text(without_controls(told), "bold")
    told = f"whether checkpoints still come to {news.where} cannot be seen: {news.reason}"
    return Text(without_controls(told), "bold yellow")


def _silence(news: CheckpointsStalled) -> str:
    since = f"{datetime.fromtimestamp(news.time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    told = f"no new checkpoint in {news.where} for {duration(round(news.lasted))}, since {since}"
    if news.newest is None:
        older = f"; the {count(news.files, 'file')} there came before" if news.files else ""
        return f"{told}, when training began{older}"
    longest = "" if news.longest is None else f"; the longest gap before was {duration(round(news.longest))}"
    return f"{told}: {_last(news)}{longest}"


def _last(news: CheckpointsStalled | CheckpointKept) -> str:
    return f"the last is {news.newest}, with {count(news.files, 'file')} ({size(news.size)}) there"


def _at_stake(news: CheckpointsStalled) -> str:
    """Only what was measured: a script need not report its steps."""
    if news.step_now is None:
        return "a crash now would lose what was trained since"
    began = f"step {news.step_then}" if news.step_then is not None else "then"
    return f"a crash now would lose what was trained from {began} to step {news.step_now}"
