"""`python -m smdp_entrypoint` is `train`."""

import sys

from smdp_entrypoint.cli import main

sys.exit(main())
