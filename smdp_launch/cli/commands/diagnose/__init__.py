"""``smdp-launch diagnose``."""

from smdp_launch.cli.commands.diagnose.main import command

__all__ = ["command"]
