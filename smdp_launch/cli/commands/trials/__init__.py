"""``smdp-launch trials``."""

from smdp_launch.cli.commands.trials.main import command

__all__ = ["command"]
