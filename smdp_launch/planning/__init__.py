"""The plan of a job: request, ranks, advice on batch size and learning rate, cost and diagnostics as plain data."""
