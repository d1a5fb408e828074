"""Why a run is slow: a verdict from the series of a run (run_metrics). Pure: no I/O."""
