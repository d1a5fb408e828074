"""A job's checkpoints in S3: their listing, and the watch over their uploads."""
