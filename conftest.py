"""For all tests: a shell that starts them in the background has them ignore Ctrl-C, and their children inherit that."""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
