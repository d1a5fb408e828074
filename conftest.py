"""For all tests: a shell that starts them in the background has them ignore Ctrl-C, which their children would inherit."""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
