"""Reads the text of a job file: a validated job, the origin of each value, and diagnostics."""
