"""Files to and from S3."""
