"""The command line: one file a command, and ``render`` for what a person or a machine reads."""

from smdp_launch.cli.main import main

__all__ = ["main"]
