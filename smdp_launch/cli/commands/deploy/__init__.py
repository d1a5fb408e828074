"""``smdp-launch deploy``."""

from smdp_launch.cli.commands.deploy.main import command

__all__ = ["command"]
