"""``python -m smdp_launch`` is the command ``smdp-launch``."""

from smdp_launch.cli import main

main()
