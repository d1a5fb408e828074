"""Measures where the time of a training process goes, without a change to its script (docs/how-to/measured-runs.md).

``clock`` divides the time of the training thread among phases, ``emission`` writes it as the event ``timing``, and the
modules for each framework move the clock from phase to phase. Nothing is measured outside of a job.
"""

from .clock import Clock
from .emission import start

__all__ = ["Clock", "start"]
