"""CloudWatch Logs, and the metrics that are found in the logs, read from the jobs' files."""
