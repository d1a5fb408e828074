"""`python -m smdp_entrypoint` is `train`, and `python -m smdp_entrypoint serve` is `serve`."""

import gc
import sys

if sys.argv[1:] == ["serve"]:
    from smdp_entrypoint.serving.cli import main
else:
    from smdp_entrypoint.cli import main

code = main()
gc.freeze()  # the interpreter's last collection would only delay the host's end
sys.exit(code)
