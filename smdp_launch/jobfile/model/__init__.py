"""The schema of a job file: its models, and its errors as diagnostics."""
