"""The storages that are fast enough for a job's data, and the limits that make others too slow. Pure: no I/O."""
