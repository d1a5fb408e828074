"""The gradients of real models: the launcher has them, which models how they scale."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from smdp_launch.scaling.traces import (
    TRACES,
    Bucket,
    bert_base,
    buckets_of,
    elements,
)

__all__ = ["TRACES", "Bucket", "bert_base", "buckets_of", "elements"]
