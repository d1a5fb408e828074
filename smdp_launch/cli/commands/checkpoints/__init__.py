"""``smdp-launch checkpoints``."""

from smdp_launch.cli.commands.checkpoints.main import command

__all__ = ["command"]
