"""The status of one job, and of many, as the service reports it."""
