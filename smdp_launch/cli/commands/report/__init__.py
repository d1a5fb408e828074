"""``smdp-launch report``."""

from smdp_launch.cli.commands.report.main import command

__all__ = ["command"]
