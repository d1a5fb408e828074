"""Reads the text of a job file, and returns the validated job, the origin of each value, and the diagnostics."""
