"""What a notebook shows of jobs, plans and diagnostics."""
