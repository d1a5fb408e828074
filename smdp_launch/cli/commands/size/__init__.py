"""``smdp-launch size``."""

from smdp_launch.cli.commands.size.main import command

__all__ = ["command"]
