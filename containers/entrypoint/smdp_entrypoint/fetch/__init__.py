"""Downloads: the source archive from S3, the package index, credentials."""
