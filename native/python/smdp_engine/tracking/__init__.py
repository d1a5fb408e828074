"""Sends the numbers of a run to TensorBoard, MLflow and Weights & Biases (docs/how-to/watch/tracking.md).

``reports`` runs in the script's process and does one thing: it writes event lines to a pipe, without waiting. A process
of its own (``process``) reads them and calls the trackers' own clients, so that a tracker that is slow, down or broken
cannot stop the training.
"""

from .reports import close_at_exit, report

__all__ = ["close_at_exit", "report"]
