"""Job file text to a validated job, with the origin of each value and diagnostics."""
