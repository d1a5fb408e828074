"""``python -m smdp_launch`` is the command ``smdp-launch``."""

from smdp_launch.console import main

main()
