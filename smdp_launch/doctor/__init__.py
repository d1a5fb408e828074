"""Checks of the machine and the Python environment: what is missing to run jobs, and the command that fixes it."""
