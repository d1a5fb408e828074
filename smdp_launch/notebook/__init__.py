"""HTML views of jobs, plans and diagnostics for notebooks."""
