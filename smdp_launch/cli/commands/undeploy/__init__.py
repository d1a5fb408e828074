"""``smdp-launch undeploy``."""

from smdp_launch.cli.commands.undeploy.main import command

__all__ = ["command"]
