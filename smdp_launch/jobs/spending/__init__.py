"""What the jobs, sweeps, endpoints and warm pools of a folder cost, and what they cost in a week."""
