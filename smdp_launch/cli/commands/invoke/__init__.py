"""``smdp-launch invoke``."""

from smdp_launch.cli.commands.invoke.main import command

__all__ = ["command"]
