"""What runs a job: its supervisor, its simulated hosts and what they exchange with S3."""
