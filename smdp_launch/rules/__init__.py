"""One function for each diagnostic code of a job; no I/O."""
