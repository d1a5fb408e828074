"""`python -m smdp_entrypoint` is `train`, and `python -m smdp_entrypoint serve` is `serve`."""

import sys

from smdp_entrypoint.start import serve, train

sys.exit(serve() if sys.argv[1:] == ["serve"] else train())
