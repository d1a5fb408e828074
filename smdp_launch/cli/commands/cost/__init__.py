"""``smdp-launch cost``."""

from smdp_launch.cli.commands.cost.main import command

__all__ = ["command"]
