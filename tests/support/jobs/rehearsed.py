"""A job that counts and can be rehearsed."""

from __future__ import annotations

#: Counts to 12 in steps of 0.2 s and saves the count after each step, or with SAVE=term only at SIGTERM. A first try
#: that will be interrupted is slower from step 7, so that it does not complete before the interruption.
COUNTS = """
import json, os, signal, sys, time
from pathlib import Path
place = Path(os.environ["SMDP_CHECKPOINT_DIR"], "count")
count = int(place.read_text()) if place.exists() else 0
rank = int(os.environ["RANK"])
is_interrupted = count == 0 and os.environ.get("INTERRUPTED") == "1"
def keep():
    partial = place.with_name("partial")
    partial.write_text(str(count))
    partial.replace(place)
def end(*_):
    keep()
    sys.exit(0 if os.environ.get("SAVE") == "term" else 1)
if os.environ.get("SAVE") == "term" and rank == 0:
    signal.signal(signal.SIGTERM, end)
print("begins at", count, flush=True)
while count < 12:
    time.sleep(2 if is_interrupted and count >= 7 else 0.2)
    count += 1
    if rank == 0:
        step = {"smdp_event": 1, "event": "step", "time": time.time(), "rank": 0, "step": count, "steps": 12}
        print(json.dumps(step), flush=True)
        if os.environ.get("SAVE") != "term":
            keep()
"""
