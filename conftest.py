"""For all tests: a shell that starts them in the background has them ignore Ctrl-C, and their children inherit that.

No example of a property test has a deadline: its time says how busy the machine is.
"""

from __future__ import annotations

import signal

from hypothesis import settings

signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")
