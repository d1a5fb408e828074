"""The parts of a training thread's time in the event ``timing`` (docs/reference/events.md)."""

#: The names of the phases in the event ``timing``, each with ``_s`` added.
PHASES = (
    "input",
    "copy",
    "forward",
    "backward",
    "exchange",
    "optimizer",
    "checkpoint",
    "logging",
    "evaluation",
    "other",
)
