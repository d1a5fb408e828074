"""Numbers of runs: events that a run writes, and what readers make of them."""
