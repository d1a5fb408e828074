"""``smdp-launch scale``."""

from smdp_launch.cli.commands.scale.main import command

__all__ = ["command"]
