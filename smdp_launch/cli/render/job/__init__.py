"""A job and its run, as text and as JSON."""
