"""The log lines of a job: its streams, their merge in order of time, and the tracebacks in them."""
