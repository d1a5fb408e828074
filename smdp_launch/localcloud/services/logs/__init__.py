"""CloudWatch Logs, and the metrics in the logs, read from the files of the jobs."""
