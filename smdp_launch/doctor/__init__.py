"""Whether this machine and this Python environment can run jobs: what is missing, and the command that fixes it."""
