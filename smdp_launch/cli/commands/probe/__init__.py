"""``smdp-launch probe``."""

from smdp_launch.cli.commands.probe.main import command

__all__ = ["command"]
