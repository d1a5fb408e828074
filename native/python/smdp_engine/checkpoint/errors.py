"""The error of this package."""


class CheckpointError(Exception):
    """A checkpoint could not be saved, read, or agreed on by the ranks; the message names the file and the rank."""
