"""``smdp-launch endpoints``."""

from smdp_launch.cli.commands.endpoints.main import command

__all__ = ["command"]
