"""``smdp-launch doctor``."""

from smdp_launch.cli.commands.doctor.main import command

__all__ = ["command"]
