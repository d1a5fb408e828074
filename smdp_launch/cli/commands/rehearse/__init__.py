"""``smdp-launch rehearse``."""

from smdp_launch.cli.commands.rehearse import endpoint
from smdp_launch.cli.commands.rehearse.main import command

for _one in endpoint.COMMANDS:
    command.add_command(_one)

__all__ = ["command"]
