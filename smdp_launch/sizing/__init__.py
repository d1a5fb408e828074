"""Which storage is fast enough for the data that a job reads each second, and what limits the other storages. Pure: no I/O."""
