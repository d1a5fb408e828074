"""The cost of the jobs, sweeps, endpoints and warm pools of a folder, in total and in a week."""
