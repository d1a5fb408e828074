"""The engine's recordings: dump flight records, merge the timelines of all ranks, and summarize them.

``python -m smdp_engine.trace`` is the command for it; docs/how-to/slow-runs.md is the guide.
"""

from .dumping import dump
from .errors import TraceError
from .merging import merge
from .records import read_records
from .report import summary
from .timelines import Timeline, read_timelines

__all__ = ["Timeline", "TraceError", "dump", "merge", "read_records", "read_timelines", "summary"]
