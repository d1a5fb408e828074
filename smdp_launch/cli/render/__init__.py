"""Output of the command line, as text and as JSON."""
