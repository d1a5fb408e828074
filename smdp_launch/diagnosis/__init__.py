"""Why a run is slow: a verdict from the measured values of a run (run_metrics). Pure: no I/O."""
