"""CloudWatch Logs and the metrics found in the logs, read from the jobs' files."""
