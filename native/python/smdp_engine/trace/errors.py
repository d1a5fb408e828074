"""What goes wrong with traces."""


class TraceError(Exception):
    """One sentence: the file, what is wrong with it, what to do."""
