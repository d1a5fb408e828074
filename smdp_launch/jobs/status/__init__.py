"""What the service reports of one job, and of many."""
