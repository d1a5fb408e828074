"""``smdp-launch export``."""

from smdp_launch.cli.commands.export.main import command

__all__ = ["command"]
