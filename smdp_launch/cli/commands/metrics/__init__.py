"""``smdp-launch metrics``."""

from smdp_launch.cli.commands.metrics.main import command

__all__ = ["command"]
