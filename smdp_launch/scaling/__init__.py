"""Model of a job's step time and cost on more hosts."""
