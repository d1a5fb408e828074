"""Files that come from elsewhere: the source archive from S3, packages, credentials."""
