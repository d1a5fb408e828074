"""What the engine recorded: flight records on demand, timelines of all ranks in one, and what they say.

``python -m smdp_engine.trace`` does the same from a shell; docs/tracing.md is the guide.
"""

from .dumping import dump
from .errors import TraceError
from .merging import merge
from .records import read_records
from .report import summary
from .timelines import Timeline, read_timelines

__all__ = ["Timeline", "TraceError", "dump", "merge", "read_records", "read_timelines", "summary"]
