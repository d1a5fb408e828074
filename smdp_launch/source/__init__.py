"""The source folder: scan, ignore file, archive."""
