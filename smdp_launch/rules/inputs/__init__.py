"""Rules about input data and locations in S3."""
