"""The object service: calls, checksums and the files that hold the objects."""
