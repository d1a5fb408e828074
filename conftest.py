"""For all tests: a shell that starts them in the background has them ignore Ctrl-C, and their children inherit that.

No example of a property test has a deadline: its time says how busy the machine is. `make test` tries a fifth of the
examples, `make test-soak` (``--hypothesis-profile whole``) all of them.
"""

from __future__ import annotations

import signal

from hypothesis import settings

signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("whole", deadline=None, max_examples=100)
settings.register_profile("slice", deadline=None, max_examples=20)
settings.load_profile("slice")
