"""The command line: one module for each command in ``commands``, output for people and programs in ``render``."""

from smdp_launch.cli.main import main

__all__ = ["main"]
