"""``smdp-launch compare``."""

from smdp_launch.cli.commands.compare.main import command

__all__ = ["command"]
