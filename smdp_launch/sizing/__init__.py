"""Which storage carries the data that a job reads each second, and what limits the others. Pure: no I/O."""
