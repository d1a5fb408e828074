"""`python -m smdp_entrypoint` is `train`."""

import gc
import sys

from smdp_entrypoint.cli import main

code = main()
gc.freeze()  # the interpreter's last collection would only delay the host's end
sys.exit(code)
