"""The storages that are fast enough for the data of a job, and the limits of the others. Pure: no I/O."""
