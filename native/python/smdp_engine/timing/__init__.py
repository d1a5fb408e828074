"""Measures how a training process spends its time, without a change to its script.

docs/how-to/watch/measured-runs.md has the phases. ``clock`` divides the time of the training thread among them,
``emission`` writes it as the event ``timing``, and the modules for each framework move the clock from phase to phase.
Nothing is measured outside of a job.
"""

from .clock import Clock
from .emission import start

__all__ = ["Clock", "start"]
