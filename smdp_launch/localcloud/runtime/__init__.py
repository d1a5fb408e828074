"""Code that runs a job: its supervisor, its simulated hosts, and their exchange with S3."""
