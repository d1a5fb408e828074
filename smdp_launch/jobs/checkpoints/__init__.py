"""A job's checkpoints in S3: their listing, and a watch over their uploads."""
