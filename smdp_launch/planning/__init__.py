"""The plan of a job: request, ranks, batch advice, cost and diagnostics as plain data."""
