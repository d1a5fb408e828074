"""The errors of this package."""


class TraceError(Exception):
    """The message names the file, what is wrong with it, and what to do."""
